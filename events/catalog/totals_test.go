package catalog_test

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
)

// counter is a log with a short retention, and the expected counts.
type counter struct {
	t    *testing.T
	srv  *eventstest.Server
	log  *events.Log
	want map[process.Outcome]uint64
}

func (c *counter) open() *events.Log {
	c.t.Helper()
	log, err := events.Open(c.t.Context(), events.Config{InProcess: c.srv, Name: c.t.Name(), Retention: time.Second})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(log.Close)
	return log
}

// Put adds a running process, and then its end; nil: it keeps running.
func (c *counter) put(spec process.Spec, exit *process.Exit, killed bool) {
	c.t.Helper()
	s := process.Summary{ID: process.NewID(sandbox.NewID()), Tenant: "t", Host: eventstest.Host, Spec: spec, PID: 7, Started: time.Now()}
	rev, err := c.log.PutSummary(c.t.Context(), &s, 0)
	if err == nil && exit != nil {
		s.Exit, s.Ended, s.Killed, s.Last = exit, time.Now(), killed, 3
		_, err = c.log.PutSummary(c.t.Context(), &s, rev)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	if !spec.Helper {
		c.want[s.Outcome()]++
	}
}

func (c *counter) some() {
	c.t.Helper()
	ok, failed := int32(0), int32(6)
	c.put(process.Spec{Cmd: "x"}, &process.Exit{Code: &ok, Cause: process.CauseExited}, false)
	c.put(process.Spec{Cmd: "x"}, &process.Exit{Code: &failed, Cause: process.CauseExited}, false)
	c.put(process.Spec{Cmd: "x"}, &process.Exit{Signal: 9, Cause: process.CauseKilled}, true)
	c.put(process.Spec{Cmd: "x"}, nil, false)
	c.put(process.Spec{Cmd: "kernel", Helper: true}, nil, false)
	c.put(process.Spec{Cmd: "kernel", Helper: true}, &process.Exit{Code: &ok, Cause: process.CauseExited}, false)
}

func (c *counter) check(when string, v *catalog.View) {
	c.t.Helper()
	if err := v.Sync(c.t.Context()); err != nil {
		c.t.Fatal(err)
	}
	got := v.Counts()
	maps.DeleteFunc(got, func(_ process.Outcome, n uint64) bool { return n == 0 })
	if !maps.Equal(got, c.want) {
		c.t.Errorf("%s: got %v, want %v", when, got, c.want)
	}
}

// left returns the number of catalog entries, including the totals.
func (c *counter) left() uint64 {
	c.t.Helper()
	s, err := eventstest.JetStream(c.t, c.srv).Stream(c.t.Context(), "PROC")
	if err != nil {
		c.t.Fatal(err)
	}
	return s.CachedInfo().State.Msgs
}

// saveState saves the server's stored state of the catalog; restore puts it back, as
// after a kill.
func (c *counter) saveState() (restore func()) {
	c.t.Helper()
	c.srv.Restart() // a clean stop saves it
	found, err := filepath.Glob(filepath.Join(c.srv.Dir(), "jetstream", "*", "streams", "PROC", "msgs", "index.db"))
	if err != nil || len(found) != 1 {
		c.t.Fatalf("state: %v, %v", found, err)
	}
	saved, err := os.ReadFile(found[0])
	if err != nil {
		c.t.Fatal(err)
	}
	return func() {
		if err := os.WriteFile(found[0], saved, 0o600); err != nil {
			c.t.Fatal(err)
		}
	}
}

// sweepUntil sweeps until at most n entries are left.
func (c *counter) sweepUntil(v *catalog.View, n uint64) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 2*time.Minute)
	defer cancel()
	for c.left() > n {
		if err := v.SweepCatalog(ctx); err != nil {
			c.t.Fatal(err)
		}
	}
}

// Totals count each process once, whatever retention dropped, and all views agree.
func TestTotalsNeverShrink(t *testing.T) {
	srv := eventstest.Start(t)
	c := &counter{t: t, srv: srv, want: make(map[process.Outcome]uint64)}
	c.log = c.open()
	old := eventstest.View(t, c.log)
	for round := range uint64(4) {
		for range 5 {
			c.some()
		}
		c.check("before the sweep", old)
		c.check("a new view before the sweep", eventstest.View(t, c.open()))
		state := c.saveState()
		// The running ones, and the totals.
		c.sweepUntil(old, 10*(round+1)+1)
		c.check("after the sweep", old)
		c.check("a new view after the sweep", eventstest.View(t, c.open()))
		srv.Stop()
		state()
		srv.Resume()
		fresh := eventstest.View(t, c.open())
		c.check("after a restart", fresh)
		if err := fresh.SweepCatalog(t.Context()); err != nil { // nothing new: the totals stay
			t.Fatal(err)
		}
		c.check("after an idle sweep", eventstest.View(t, c.open()))
		c.check("the old view", old)
	}
}
