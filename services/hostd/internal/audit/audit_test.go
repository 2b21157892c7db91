package audit

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/fleet"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/record"
)

// rig is a log with processes that ended, and the host's checkpoint.
type rig struct {
	t    *testing.T
	srv  *eventstest.Server
	log  *events.Log
	view *catalog.View
	last fleet.Checkpoint
}

func newRig(t *testing.T) *rig {
	r := &rig{t: t, srv: eventstest.Start(t)}
	r.log = eventstest.Open(t, r.srv)
	r.view = eventstest.View(t, r.log)
	return r
}

// ended stores a process that ended some time ago. With lost, its record has no end, but its entry in the
// catalog has.
func (r *rig) ended(ago time.Duration, lost bool) process.ID {
	r.t.Helper()
	ref, code := eventstest.NewRef(), int32(0)
	exit := process.Exit{Cause: process.CauseExited, Code: &code}
	at := time.Now().Add(-ago)
	w := r.log.Writer(ref, 1)
	all := []process.Event{
		{Seq: 1, Time: at, Body: process.Accepted{Tenant: "default"}},
		{Seq: 2, Time: at, Body: process.Started{PID: 12}},
		{Seq: 3, Time: at, Body: process.Finished{Exit: exit}},
	}
	if lost {
		all = all[:2]
	}
	if err := w.Append(r.t.Context(), all); err != nil {
		r.t.Fatal(err)
	}
	sum := process.Summary{
		ID: ref.ID, Tenant: "default", Host: eventstest.Host, Epoch: 1, PID: 12, Started: at, Ended: at, Exit: &exit, Last: 3,
	}
	if _, err := r.log.PutSummary(r.t.Context(), &sum, 0); err != nil {
		r.t.Fatal(err)
	}
	return ref.ID
}

// audit runs an auditor until enough is true of the processes that it completes and of the host's last
// checkpoint.
func (r *rig) audit(enough func(completed map[process.ID]bool, checkpoint fleet.Checkpoint) bool) {
	r.t.Helper()
	ctx, stop := context.WithTimeout(r.t.Context(), time.Minute)
	defer stop()
	var mu sync.Mutex
	done := false
	completed := make(map[process.ID]bool)
	check := func() {
		if !done && enough(completed, r.last) {
			done = true
			stop()
		}
	}
	a := New(Config{
		Host: eventstest.Host, Epoch: 2, Log: r.log, View: r.view, Checkpoint: r.last, Interval: time.Millisecond,
		Checkpointed: func(c fleet.Checkpoint) { mu.Lock(); defer mu.Unlock(); r.last = c; check() },
		Complete: func(ctx context.Context, id process.ID) error {
			mu.Lock()
			defer mu.Unlock()
			completed[id] = true
			check()
			return nil
		},
		Spawn: func(_ string, work func(context.Context) error) {
			if err := work(ctx); err != nil {
				r.t.Error(err)
			}
		},
		Slog: slog.New(slog.DiscardHandler),
	})
	if err := a.Run(ctx); err != nil {
		r.t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if !done {
		r.t.Fatalf("completed %v, checkpoint %+v", completed, r.last)
	}
}

// A checkpoint follows the stream, and waits for the ends that are missing.
func TestCheckpointFollowsTheEnds(t *testing.T) {
	r := newRig(t)
	r.ended(time.Hour, false)
	r.audit(func(completed map[process.ID]bool, c fleet.Checkpoint) bool { return len(completed) == 0 && c.Seq > 0 })
	before := r.last
	lost := r.ended(0, true)
	r.audit(func(completed map[process.ID]bool, c fleet.Checkpoint) bool {
		if c != before {
			t.Errorf("the checkpoint moved although an end is missing: %+v", c)
		}
		return completed[lost]
	})
	w := r.log.Writer(record.Ref{Host: eventstest.Host, ID: lost}, 2)
	if _, err := w.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := w.Append(t.Context(), []process.Event{{Seq: 3, Time: time.Now(), Body: process.Finished{}}}); err != nil {
		t.Fatal(err)
	}
	r.audit(func(_ map[process.ID]bool, c fleet.Checkpoint) bool { return c.Seq > before.Seq })
}

// The ends of processes that ended before the checkpoint are read only if the stream lacks messages.
func TestOnlyALossLeadsToAnAuditOfAll(t *testing.T) {
	r := newRig(t)
	r.ended(time.Hour, false)
	r.audit(func(_ map[process.ID]bool, c fleet.Checkpoint) bool { return c.Seq > 0 })
	old := r.ended(time.Hour, true) // cannot happen without a loss that shows
	before := r.last
	r.audit(func(completed map[process.ID]bool, c fleet.Checkpoint) bool {
		if completed[old] {
			t.Error("an old end was read although the stream is whole")
		}
		return c.Seq > before.Seq
	})
	for _, d := range eventstest.Damages() {
		if d.Name == eventstest.Tail {
			r.srv.Damage("OUT_00", d)
		}
	}
	r.srv.Resume()
	r.audit(func(completed map[process.ID]bool, _ fleet.Checkpoint) bool { return completed[old] })
}
