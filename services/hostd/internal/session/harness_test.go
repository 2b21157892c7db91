package session

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/mux"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/record"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/seal"
	"github.com/millrace/millrace/services/hostd/internal/commands"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/link"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

const (
	tenant   = "t"
	hostName = "h"
)

// bench is a session without a sandbox, and its host.
type bench struct {
	*Session
	commands *commands.Reader
	wg       sync.WaitGroup
	stop     chan struct{}
}

// bare returns a session on a host with nothing else. Its work ends with ctx.
func bare(ctx context.Context, inst driver.Instance) *bench {
	return on(ctx, new(events.Log), nil, inst) // that log sends nothing
}

// ring returns a ring with a key of its own.
func ring() *seal.Ring {
	m, err := seal.ParseMaster(seal.NewMaster())
	if err != nil {
		panic(err)
	}
	r, err := seal.NewSet(m).Ring(m)
	if err != nil {
		panic(err)
	}
	return r
}

func on(ctx context.Context, log *events.Log, view *catalog.View, inst driver.Instance) *bench {
	quiet := slog.New(slog.DiscardHandler)
	fault := func(string) error { return nil }
	b := &bench{stop: make(chan struct{})}
	b.commands = commands.New(commands.Config{Host: hostName, Log: log, Fault: fault, Slog: quiet}, 0)
	h := NewHost(HostConfig{
		Name: hostName, Epoch: 2, Log: log, View: view, Ring: ring(), Commands: b.commands,
		Abort: func(error) {}, Fault: fault, Go: b.wg.Go, Slog: quiet,
		Spawn: func(_ string, work func(context.Context) error) {
			b.wg.Go(func() { work(ctx) })
		},
	})
	b.Session = h.Session(Config{
		ID: sandbox.NewID(), Tenant: tenant, Requests: new(atomic.Uint64), Stop: b.stop,
		Ending: func() bool {
			select {
			case <-b.stop:
				return true
			default:
				return false
			}
		},
		Unrecorded: func() bool { return false }, Usable: func() error { return nil },
		Instance: func() driver.Instance { return inst }, Env: func() map[string]string { return nil },
		Spool: func() (*os.File, error) { return nil, nil }, Network: noNetwork{},
	})
	return b
}

// withLog returns a session of a host that has a log and a catalog, for the duration of the test.
func withLog(t *testing.T, inst driver.Instance) *bench {
	t.Helper()
	log := eventstest.Open(t, eventstest.Start(t))
	ctx, end := context.WithCancel(t.Context())
	b := on(ctx, log, eventstest.View(t, log), inst)
	t.Cleanup(func() {
		end()
		b.wg.Wait()
	})
	return b
}

// serve serves the session of a sandbox that is never paused.
func (b *bench) serve(ctx context.Context) error {
	return b.Serve(ctx, noPauses{}, func(context.Context) error { return nil })
}

type noNetwork struct{}

func (noNetwork) Attach(*link.Conn)   {}
func (noNetwork) Detach(*link.Conn)   {}
func (noNetwork) Serve(s *mux.Stream) { s.Abort(errors.New("no network")) }

type noPauses struct{}

func (noPauses) AwaitResumed(context.Context) error { return nil }
func (noPauses) Changed() <-chan struct{}           { return nil }
func (noPauses) Reconcile(context.Context) error    { return nil }
func (noPauses) ResumeInstance(context.Context)     {}

// fakeInstance is an instance whose shim runs a function on each connection, after its Hello.
type fakeInstance struct {
	driver.Instance
	processes []wire.Process
	shim      func(net.Conn)
}

func (p fakeInstance) Dial(context.Context) (net.Conn, error) {
	ours, theirs := net.Pipe()
	go func() {
		defer theirs.Close()
		if _, _, err := wire.NewReader(theirs).Next(); err != nil {
			return
		}
		var hello []byte
		for _, hp := range p.processes {
			if hp.Moved != nil {
				hello = wire.AppendMoved(hello, hp.Moved)
			}
		}
		if _, err := theirs.Write(wire.AppendHello(hello, &wire.Hello{Processes: p.processes})); err == nil {
			p.shim(theirs)
		}
	}()
	return ours, nil
}

func (fakeInstance) Done() <-chan struct{} { return nil }

// quiet receives everything and sends nothing.
func quiet(c net.Conn) { io.Copy(io.Discard, c) }

// silent returns a process without a record.
func (b *bench) silent() *proc {
	p := &proc{h: b.h, ss: b.Session, id: process.NewID(b.cfg.ID), done: make(chan struct{}), wake: make(chan struct{}, 1)}
	p.assemble()
	return p
}

// known returns a process without a record that the session has.
func (b *bench) known() *proc {
	p := b.silent()
	b.procs[p.id.Token()] = p
	return p
}

func sh(script string) process.Spec {
	return process.Spec{Cmd: "/bin/sh", Args: []string{"-c", script}}
}

// whole returns the events of a record that has ended, which are valid, and its end.
func (b *bench) whole(t *testing.T, id process.ID) ([]process.Event, process.Exit) {
	t.Helper()
	var all []process.Event
	var state process.State
	rd := b.h.cfg.Log.Read(record.Ref{Host: hostName, ID: id}, 0)
	defer rd.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		batch, err := rd.Next(ctx, time.Second)
		if errors.Is(err, io.EOF) {
			break
		}
		for _, e := range batch {
			if err == nil {
				state, err = state.Apply(e)
			}
			all = append(all, e)
		}
		if err != nil {
			t.Fatalf("after %d events: %v", len(all), err)
		}
	}
	end, _ := all[len(all)-1].Body.(process.Finished)
	return all, end.Exit
}
