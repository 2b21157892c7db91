package hostd

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/record"
)

// processRecord has all events of a process, validated: seqs and offsets dense, one end.
type processRecord struct {
	events []process.Event
	out    map[process.Stream][]byte
	state  process.State
}

func (rec *processRecord) take(e process.Event) error {
	if e.Seq != uint64(len(rec.events))+1 {
		return fmt.Errorf("seq %d after %d", e.Seq, len(rec.events))
	}
	next, err := rec.state.Apply(e)
	if err != nil {
		return err
	}
	if w, ok := e.Body.(process.Wrote); ok {
		if w.Offset != uint64(len(rec.out[w.Stream])) {
			return fmt.Errorf("%s at %d, want %d", w.Stream, w.Offset, len(rec.out[w.Stream]))
		}
		rec.out[w.Stream] = append(rec.out[w.Stream], w.Data...)
	}
	rec.state = next
	rec.events = append(rec.events, e)
	return nil
}

func (rec *processRecord) types() string {
	s := ""
	for _, e := range rec.events {
		s += e.Type() + " "
	}
	return s
}

func (rec *processRecord) end() *process.Exit {
	if n := len(rec.events); n > 0 {
		if f, ok := rec.events[n-1].Body.(process.Finished); ok {
			return &f.Exit
		}
	}
	return nil
}

func describe(x *process.Exit) string {
	switch {
	case x == nil:
		return "none"
	case x.Code != nil:
		return fmt.Sprintf("%s %d", x.Cause, *x.Code)
	case x.Signal != 0:
		return fmt.Sprintf("%s by %d", x.Cause, x.Signal)
	}
	return string(x.Cause)
}

// read follows a record until until returns true, or to its end.
func (r *rig) read(id process.ID, until func(*processRecord) bool) *processRecord {
	r.t.Helper()
	rec := &processRecord{out: make(map[process.Stream][]byte)}
	rd := r.log.Read(record.Ref{Host: r.cfg.Name, ID: id}, 0).ShownBy(r.view)
	defer rd.Close()
	ctx := r.ctx()
	for {
		batch, err := rd.Next(ctx, time.Second)
		if errors.Is(err, io.EOF) {
			return rec
		}
		if err != nil {
			r.t.Fatalf("read %s after %q: %v", id, rec.types(), err)
		}
		for _, e := range batch {
			if err := rec.take(e); err != nil {
				r.t.Fatalf("%s: %v after %s", id, err, rec.types())
			}
		}
		if until != nil && until(rec) {
			return rec
		}
	}
}

func (r *rig) whole(id process.ID) *processRecord { r.t.Helper(); return r.read(id, nil) }

func (r *rig) awaitOutput(id process.ID, want string) *processRecord {
	r.t.Helper()
	return r.read(id, func(rec *processRecord) bool {
		return bytes.Contains(rec.out[process.Stdout], []byte(want)) || bytes.Contains(rec.out[process.PTY], []byte(want))
	})
}

func (r *rig) summary(id process.ID) process.Summary {
	r.t.Helper()
	if err := r.view.Sync(r.ctx()); err != nil {
		r.t.Fatal(err)
	}
	s, _, ok := r.view.Process(id)
	if !ok {
		r.t.Fatalf("%s is not in the catalog", id)
	}
	return s
}
