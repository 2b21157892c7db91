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
	"github.com/millrace/millrace/events/kind"
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
	// sweep is Config.Sweep.
	sweep time.Duration
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

// checkpoint makes a checkpoint that has all that is stored, as if no end were missing.
func (r *rig) checkpoint() {
	r.t.Helper()
	if err := r.view.Sync(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	now, _, err := r.log.Checkpoint(r.t.Context(), eventstest.Host, fleet.Checkpoint{})
	if err != nil || now.Seq == 0 {
		r.t.Fatalf("checkpoint %+v, %v", now, err)
	}
	now.Rev = r.view.ProcessesRev()
	r.last = now
}

// end stores the end of a process's record that has none.
func (r *rig) end(id process.ID) {
	r.t.Helper()
	w := r.log.Writer(record.Ref{Host: eventstest.Host, ID: id}, 2)
	if _, err := w.Recover(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	if err := w.Append(r.t.Context(), []process.Event{{Seq: 3, Time: time.Now(), Body: process.Finished{}}}); err != nil {
		r.t.Fatal(err)
	}
}

// auditor returns an auditor whose passes the test makes itself, and that adds to spawned instead of
// completing records.
func (r *rig) auditor(spawned *[]func(context.Context) error) *Auditor {
	return New(Config{
		Host: eventstest.Host, Epoch: 2, Log: r.log, View: r.view, Checkpoint: r.last,
		Checkpointed: func(c fleet.Checkpoint) { r.last = c },
		Complete:     func(context.Context, process.ID) error { return nil },
		Spawn:        func(_ string, work func(context.Context) error) { *spawned = append(*spawned, work) },
		Slog:         slog.New(slog.DiscardHandler),
	})
}

func (r *rig) pass(a *Auditor, restarted bool) {
	r.t.Helper()
	if err := a.pass(r.t.Context(), restarted); err != nil {
		r.t.Fatal(err)
	}
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
		Host: eventstest.Host, Epoch: 2, Log: r.log, View: r.view, Checkpoint: r.last, Interval: time.Millisecond, Sweep: r.sweep,
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
	r.end(lost)
	r.audit(func(_ map[process.ID]bool, c fleet.Checkpoint) bool { return c.Seq > before.Seq })
}

// The ends of processes that ended before the checkpoint are read only if the stream lacks messages.
func TestOnlyALossLeadsToAnAuditOfAll(t *testing.T) {
	r := newRig(t)
	r.ended(time.Hour, false)
	old := r.ended(time.Hour, true)
	r.checkpoint() // cannot happen without a loss that shows
	before := r.last
	r.audit(func(completed map[process.ID]bool, c fleet.Checkpoint) bool {
		if completed[old] {
			t.Error("an old end was read although the stream is whole")
		}
		return c != before
	})
	for _, d := range eventstest.Damages() {
		if d.Name == eventstest.Tail {
			r.srv.Damage("OUT_00", d)
		}
	}
	r.srv.Resume()
	r.audit(func(completed map[process.ID]bool, _ fleet.Checkpoint) bool { return completed[old] })
}

// An entry that is stored long after its process ended is checked, too: a server may be away for that long.
func TestALateEntryIsChecked(t *testing.T) {
	r := newRig(t)
	r.ended(time.Hour, false)
	r.checkpoint()
	before := r.last
	late := r.ended(time.Hour, true)
	r.audit(func(completed map[process.ID]bool, c fleet.Checkpoint) bool {
		if c != before {
			t.Errorf("the checkpoint moved although an end is missing: %+v", c)
		}
		return completed[late]
	})
}

// A checkpoint that cannot be right says nothing.
func TestAWrongCheckpointLeadsToAnAuditOfAll(t *testing.T) {
	for name, spoil := range map[string]func(*fleet.Checkpoint){
		"made in the future":            func(c *fleet.Checkpoint) { c.At = c.At.Add(time.Hour) },
		"of entries that are not there": func(c *fleet.Checkpoint) { c.Rev++ },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			old := r.ended(time.Hour, true)
			r.checkpoint()
			spoil(&r.last)
			r.audit(func(completed map[process.ID]bool, _ fleet.Checkpoint) bool { return completed[old] })
		})
	}
}

// An end whose entry is stored first does not keep a busy host from a checkpoint.
func TestAnEndOnItsWayDoesNotDelayTheCheckpoint(t *testing.T) {
	r := newRig(t)
	r.ended(time.Hour, false)
	var spawned []func(context.Context) error
	a := r.auditor(&spawned)
	r.pass(a, true)
	id := r.ended(0, true)
	for range 3 {
		before := r.last
		r.pass(a, false)
		if r.last == before || len(spawned) > 0 {
			t.Fatalf("checkpoint %+v after %+v, %d records completed", r.last, before, len(spawned))
		}
		r.end(id)
		id = r.ended(0, true)
	}
	before := r.last
	r.pass(a, false) // the entry is new to this pass
	after := r.last
	r.pass(a, false)
	if after == before || r.last != after || len(spawned) != 1 {
		t.Errorf("checkpoints %+v, %+v, %+v; %d records completed, want 1", before, after, r.last, len(spawned))
	}
}

// A record is not completed twice at the same time.
func TestARecordIsCompletedOnceAtATime(t *testing.T) {
	r := newRig(t)
	r.ended(0, true)
	var spawned []func(context.Context) error
	a := r.auditor(&spawned)
	for range 3 {
		r.pass(a, true)
	}
	if len(spawned) != 1 {
		t.Fatalf("completed %d times concurrently", len(spawned))
	}
	if err := spawned[0](t.Context()); err != nil {
		t.Fatal(err)
	}
	if r.pass(a, true); len(spawned) != 2 {
		t.Errorf("completed %d times, want again after the first one ended", len(spawned))
	}
}

// A damaged message does not show in the stream before it is read. The slow check of all ends reads it.
func TestASweepFindsWhatTheStreamDoesNotShow(t *testing.T) {
	r := newRig(t)
	var ids []process.ID
	for range 6 {
		ids = append(ids, r.ended(time.Hour, true))
	}
	for _, id := range ids { // in the middle of the stream are ends
		r.end(id)
	}
	for range 6 {
		r.ended(time.Hour, false)
	}
	r.checkpoint()
	for _, d := range eventstest.Damages() {
		if d.Name == "bits flipped in the middle" {
			r.srv.DamageUnseen("OUT_00", d)
		}
	}
	r.srv.Resume()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	_, whole, err := r.log.Checkpoint(t.Context(), eventstest.Host, r.last)
	for kind.Is(err, kind.Unavailable) { // until the log has connected again
		<-tick.C
		_, whole, err = r.log.Checkpoint(t.Context(), eventstest.Host, r.last)
	}
	if err != nil || !whole {
		t.Fatalf("the damage shows: %v, %v", whole, err)
	}
	r.sweep = time.Millisecond
	r.audit(func(completed map[process.ID]bool, _ fleet.Checkpoint) bool { return len(completed) > 0 })
}
