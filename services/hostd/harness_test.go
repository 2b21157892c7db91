package hostd

import (
	"bytes"
	"cmp"
	"context"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/kind"
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
	sigKill     = 9
)

// rig is a log, a host that uses it, and a client of both.
type rig struct {
	t    testing.TB
	srv  *eventstest.Server
	log  *events.Log
	view *catalog.View
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
		os.RemoveAll(dir)
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

func isKind(err error, k kind.Kind) bool { return kind.Is(err, k) }

func yes() bool { return true }
