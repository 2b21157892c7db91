package reaper

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/sandbox"
)

// reapUntil runs a reaper on a log until it is dead, and then another one. stop ends both.
func (w *world) reapUntil(dead <-chan struct{}, victim *events.Log) (stop func()) {
	ctx, cancel := context.WithCancel(w.ctx)
	now := func() time.Time { return time.Now().Add(time.Duration(w.ahead.Load())) }
	run := func(log *events.Log, ctx context.Context) {
		if err := Run(ctx, Config{Log: log, Tick: tick, Now: now}); err != nil {
			w.t.Errorf("reaper: %v", err)
		}
	}
	first, die := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { run(victim, first) })
	wg.Go(func() {
		defer die()
		select {
		case <-dead:
			die()
			run(w.log, ctx)
		case <-ctx.Done():
		}
	})
	return func() { cancel(); wg.Wait() }
}

// A reaper dies before each of its appends: another one warns, and ends an idle sandbox and one whose time is
// up, once.
func TestReaperDiesBetweenAppends(t *testing.T) {
	srv := eventstest.StartListening(t)
	w := newWorld(t, srv)
	const appends = 3 // the end of the idle one, a warning and an end
	for n := 1; n <= appends+1; n++ {
		w.ahead.Store(0)
		begin := func(s sandbox.Schedule) sandbox.ID {
			id := sandbox.NewID()
			if _, err := w.log.AppendSandbox(w.ctx, "t", id, 0, 1, sandbox.Requested{Schedule: s}, placed, running); err != nil {
				t.Fatal(err)
			}
			return id
		}
		idle := begin(sandbox.Schedule{Idle: 100 * time.Millisecond, HardEnd: time.Now().Add(9 * time.Hour)})
		warned := begin(sandbox.Schedule{Lifetime: 9 * time.Hour, HardEnd: time.Now().Add(time.Hour), Warning: time.Minute})
		proxy := eventstest.StartProxy(t, srv.Addr())
		log := proxy.Open(t)
		dead := proxy.DieBefore(n, func(subject string) bool { return strings.HasPrefix(subject, "sbx.") })
		stop := w.reapUntil(dead, log)
		await := func(id sandbox.ID, done func(*sandbox.State) bool) sandbox.State {
			s, err := w.view.AwaitSandbox(w.ctx, id, done)
			if err != nil {
				t.Fatalf("death before append %d: %v", n, err)
			}
			return s
		}
		stops := func(s *sandbox.State) bool { return s.Phase == sandbox.PhaseStopping }
		w.ahead.Store(int64(59*time.Minute + time.Second))
		await(warned, func(s *sandbox.State) bool { return s.Warned })
		await(idle, stops)
		w.ahead.Store(int64(2 * time.Hour))
		await(warned, stops)
		stop()
		proxy.Kill()
		for id, want := range map[sandbox.ID]struct {
			cause string
			seq   uint64
		}{idle: {sandbox.CauseTimeout, 4}, warned: {sandbox.CauseHardEnd, 5}} {
			if s, _ := w.view.Sandbox(id); s.Cause != want.cause || s.Seq != want.seq {
				t.Errorf("death before append %d: stopped by %q at event %d, want %q at %d", n, s.Cause, s.Seq, want.cause, want.seq)
			}
		}
		select {
		case <-dead:
			if n > appends {
				t.Errorf("more than %d appends", appends)
			}
		default:
			if n <= appends {
				t.Errorf("no append %d", n)
			}
		}
	}
}
