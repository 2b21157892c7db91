package events_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/natsd"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/record"
	"github.com/millrace/millrace/events/sandbox"
)

// openExample opens a log on an embedded server with files in a temporary directory.
func openExample(ctx context.Context) (log *events.Log, closeAll func(), err error) {
	dir, err := os.MkdirTemp("", "millrace-example")
	if err != nil {
		return nil, nil, err
	}
	srv, err := natsd.Start(natsd.Config{Dir: dir})
	if err != nil {
		return nil, nil, err
	}
	if log, err = events.Open(ctx, events.Config{InProcess: srv}); err != nil {
		return nil, nil, err
	}
	return log, func() {
		log.Close()
		srv.Stop()
		os.RemoveAll(dir)
	}, nil
}

// A Writer appends the events of a process, and a Reader yields each of them once, in order.
func Example() {
	ctx := context.Background()
	log, closeAll, err := openExample(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer closeAll()

	ref := record.Ref{Host: "host-1", ID: process.NewID(sandbox.NewID())}
	code := int32(0)
	exit := process.Exit{Code: &code, Cause: process.CauseExited}
	var record []process.Event
	for i, body := range []process.Body{
		process.Accepted{Spec: process.Spec{Cmd: "echo", Args: []string{"hello"}}},
		process.Started{PID: 42},
		process.Wrote{Stream: process.Stdout, Data: []byte("hello\n")},
		process.Exited{Exit: exit},
		process.Finished{Exit: exit},
	} {
		record = append(record, process.Event{Seq: process.Seq(i + 1), Time: time.Now(), Body: body})
	}
	if err := log.Writer(ref, 1).Append(ctx, record); err != nil {
		fmt.Println(err)
		return
	}

	r := log.Read(ref, 0)
	defer r.Close()
	for {
		batch, err := r.Next(ctx, 0)
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			fmt.Println(err)
			return
		}
		for _, e := range batch {
			fmt.Println(e.Seq, e.Type())
		}
	}
	// Output:
	// 1 accepted
	// 2 start
	// 3 stdout
	// 4 exited
	// 5 end
}

// After Sync a view has everything that was stored before the call.
func ExampleView_Sync() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	log, closeAll, err := openExample(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer closeAll()
	view, err := log.OpenView(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}

	id := sandbox.NewID()
	if _, err := log.AppendSandbox(ctx, "default", id, 0, 1, sandbox.Requested{Template: "base"}); err != nil {
		fmt.Println(err)
		return
	}
	if err := view.Sync(ctx); err != nil {
		fmt.Println(err)
		return
	}
	s, ok := view.Sandbox(id)
	fmt.Println(s.Phase, s.Request.Template, ok)
	// Output: requested base true
}
