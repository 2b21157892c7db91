package hostd

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
)

// The test binary is the shim when a driver starts it as one.
func TestMain(m *testing.M) {
	if code, ok := RunHiddenRole(os.Args, os.Stdout, os.Stderr); ok {
		os.Exit(code)
	}
	os.Exit(m.Run())
}

const (
	testTimeout = 30 * time.Second
	tenant      = "t"
	hostName    = "h"
)

// rig is a log, a host that uses it, and a client of both.
type rig struct {
	t    testing.TB
	srv  *eventstest.Server
	log  *events.Log
	view *events.View
	cfg  Config

	mu  sync.Mutex
	run *hostRun
}

// hostRun is one run of a host.
type hostRun struct {
	stop context.CancelFunc
	done chan struct{}
	err  error
}

func newRig(t testing.TB) *rig {
	t.Helper()
	return newRigOn(t, cmp.Or(os.Getenv("MILLRACE_TEST_DRIVER"), "direct"))
}

func newRigOn(t testing.TB, driver string) *rig {
	t.Helper()
	srv := eventstest.Start(t)
	log := eventstest.Open(t, srv)
	return newHost(t, &rig{srv: srv, log: log, view: eventstest.View(t, log)}, hostName, driver)
}

// newHost returns a rig with a host on another rig's log.
func newHost(t testing.TB, on *rig, name, driver string) *rig {
	t.Helper()
	r := &rig{t: t, srv: on.srv, log: on.log, view: on.view}
	dir, err := os.MkdirTemp("", "hostd") // short: sockets are created in it
	if err != nil {
		t.Fatal(err)
	}
	r.cfg = Config{
		Log: r.log, Name: name, CopyAhead: -1, DataDir: dir, Drivers: []string{driver}, Shim: []string{os.Args[0], shimRole},
		Slog:     slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelWarn})),
		LeaseTTL: 4 * time.Second, Grace: 300 * time.Millisecond, TCG: true,
	}
	t.Cleanup(func() {
		r.kill()
		r.clear()
		os.RemoveAll(dir) //nolint:errcheck // best effort
	})
	return r
}

// clear runs the host once more to destroy what is left. The test's own view does not follow the
// log any more.
func (r *rig) clear() {
	before, _, _, err := r.log.Lease(r.ctx(), r.cfg.Name)
	if err != nil {
		r.t.Fatal(err)
	}
	r.cfg.DestroyOnExit, r.cfg.Fault = yes, nil
	l := r.begin()
	for ready := false; !ready; {
		select {
		case <-l.done:
			r.t.Fatalf("the last run: %v", l.err)
		default:
		}
		now, _, _, err := r.log.Lease(r.ctx(), r.cfg.Name)
		if err != nil {
			r.t.Fatal(err)
		}
		ready = now.Epoch > before.Epoch && !now.Draining
	}
	r.kill()
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(b []byte) (int, error) {
	if w.t.Context().Err() == nil {
		w.t.Logf("%s", bytes.TrimSpace(b))
	}
	return len(b), nil
}

// begin starts a run of the host.
func (r *rig) begin() *hostRun {
	ctx, stop := context.WithCancel(context.Background())
	l := &hostRun{stop: stop, done: make(chan struct{})}
	cfg := r.cfg
	go func() {
		defer close(l.done)
		l.err = Run(ctx, cfg)
	}()
	r.mu.Lock()
	r.run = l
	r.mu.Unlock()
	return l
}

// beginHere is begin and awaitLease with a driver that may not work on this machine: then the
// test is skipped.
func (r *rig) beginHere() (epoch uint64) {
	r.t.Helper()
	l := r.begin()
	epoch = r.awaitLease(0)
	select {
	case <-l.done:
		r.t.Skipf("the driver does not work here: %v", l.err)
	default:
	}
	return epoch
}

// kill ends the current run cleanly, if there is one, and waits.
func (r *rig) kill() {
	r.mu.Lock()
	l := r.run
	r.run = nil
	r.mu.Unlock()
	if l == nil {
		return
	}
	l.stop()
	r.awaitEnd(l)
}

func (r *rig) awaitEnd(l *hostRun) {
	r.t.Helper()
	select {
	case <-l.done:
	case <-time.After(testTimeout):
		r.t.Fatal("the host did not end")
	}
}

func (r *rig) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	r.t.Cleanup(cancel)
	return ctx
}

// awaitLease waits for a lease of a later epoch that accepts sandboxes.
func (r *rig) awaitLease(after uint64) uint64 {
	r.t.Helper()
	changed, stop := r.view.Changes()
	defer stop()
	deadline := time.After(testTimeout)
	for {
		if h, ok := r.view.Host(r.cfg.Name); ok && h.Epoch > after && !h.Draining && !h.Gone {
			return h.Epoch
		}
		select {
		case <-changed:
		case <-deadline:
			r.t.Fatal("no lease")
		}
	}
}

// request creates a sandbox's record and places it.
func (r *rig) request(req sandbox.Requested) sandbox.ID {
	r.t.Helper()
	id := sandbox.NewID()
	if _, err := r.view.CreateSandbox(r.ctx(), tenant, id, req); err != nil {
		r.t.Fatal(err)
	}
	_, err := r.view.ChangeSandbox(r.ctx(), id, func(sandbox.State) ([]sandbox.Body, error) {
		return []sandbox.Body{sandbox.Placed{Host: r.cfg.Name, Epoch: 1}}, nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return id
}

func (r *rig) awaitPhase(id sandbox.ID, phases ...sandbox.Phase) sandbox.State {
	r.t.Helper()
	s, err := r.view.AwaitSandbox(r.ctx(), id, func(s *sandbox.State) bool {
		for _, p := range phases {
			if s.Phase == p {
				return true
			}
		}
		return s.Over()
	})
	if err != nil {
		r.t.Fatalf("sandbox in phase %q, want %q: %v", s.Phase, phases, err)
	}
	return s
}

func (r *rig) sandbox() sandbox.ID {
	r.t.Helper()
	id := r.request(sandbox.Requested{Template: "base", Env: map[string]string{"OF": "sandbox"}})
	if s := r.awaitPhase(id, sandbox.PhaseRunning); !s.IsRunning() {
		r.t.Fatalf("sandbox %q: %s", s.Phase, s.Cause)
	}
	return id
}

func (r *rig) stopSandbox(id sandbox.ID) {
	r.t.Helper()
	_, err := r.view.ChangeSandbox(r.ctx(), id, func(s sandbox.State) ([]sandbox.Body, error) {
		if s.Over() || s.Phase == sandbox.PhaseStopping {
			return nil, nil
		}
		return []sandbox.Body{sandbox.Stopping{Cause: sandbox.CauseUser}}, nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) send(id process.ID, body events.CommandBody) {
	r.t.Helper()
	if err := r.log.Send(r.ctx(), r.cfg.Name, command(id, body)); err != nil {
		r.t.Fatal(err)
	}
}

func command(id process.ID, body events.CommandBody) events.Command {
	return events.Command{ID: string(process.NewID(id.Sandbox())), Tenant: tenant, Process: id, Body: body}
}

func (r *rig) call(id process.ID, body events.CommandBody) (events.Reply, error) {
	return r.log.Call(r.ctx(), r.cfg.Name, command(id, body))
}

func (r *rig) start(sbx sandbox.ID, spec process.Spec) process.ID {
	r.t.Helper()
	id := process.NewID(sbx)
	r.send(id, events.Start{Spec: spec})
	return id
}

func sh(script string) process.Spec {
	return process.Spec{Cmd: "/bin/sh", Args: []string{"-c", script}}
}

// record has all events of a process, validated: seqs and offsets dense, one end.
type record struct {
	events []process.Event
	out    map[process.Stream][]byte
	state  process.State
}

func (rec *record) take(e process.Event) error {
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

func (rec *record) types() string {
	s := ""
	for _, e := range rec.events {
		s += e.Type() + " "
	}
	return s
}

func (rec *record) end() *process.Exit {
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
func (r *rig) read(id process.ID, until func(*record) bool) *record {
	r.t.Helper()
	rec := &record{out: make(map[process.Stream][]byte)}
	rd := r.log.Read(events.Ref{Host: r.cfg.Name, ID: id}, 0)
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

func (r *rig) whole(id process.ID) *record { r.t.Helper(); return r.read(id, nil) }

func (r *rig) awaitOutput(id process.ID, want string) *record {
	r.t.Helper()
	return r.read(id, func(rec *record) bool {
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
		r.t.Fatalf("%s is not in the catalogue", id)
	}
	return s
}

// file reads a file in the home directory of a sandbox's user.
func (r *rig) file(sbx sandbox.ID, name string) string {
	r.t.Helper()
	rec := r.whole(r.start(sbx, sh("cd; cat "+name)))
	if end := describe(rec.end()); end != "exited 0" {
		r.t.Fatalf("read %s: %s", name, end)
	}
	return string(rec.out[process.Stdout])
}

// killShim kills a sandbox's shim.
func (r *rig) killShim(sbx sandbox.ID) {
	r.t.Helper()
	b, err := os.ReadFile(filepath.Join(r.cfg.DataDir, sandboxDir, string(sbx), "state.json"))
	if err != nil {
		r.t.Fatal(err)
	}
	var state struct{ PID int }
	if err := json.Unmarshal(b, &state); err != nil || state.PID == 0 {
		r.t.Fatalf("%s: %v", b, err)
	}
	shim, err := os.FindProcess(state.PID)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := shim.Kill(); err != nil {
		r.t.Fatal(err)
	}
}

func isKind(err error, k kind.Kind) bool { return kind.Is(err, k) }

func yes() bool { return true }
