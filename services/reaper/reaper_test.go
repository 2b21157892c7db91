package reaper

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/fleet"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/record"
	"github.com/millrace/millrace/events/sandbox"
)

const tick = 50 * time.Millisecond

// world is a log with a reaper and a view.
type world struct {
	t    *testing.T
	ctx  context.Context
	log  *events.Log
	view *catalog.View

	sweep time.Duration // Config.Sweep
	ahead atomic.Int64  // how far the reapers' clock is ahead
}

func newWorld(t *testing.T, srv *eventstest.Server) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	log := eventstest.Open(t, srv)
	return &world{t: t, ctx: ctx, log: log, view: eventstest.View(t, log)}
}

// reap runs a reaper until the test ends or stop is called.
func (w *world) reap() (stop func()) {
	ctx, cancel := context.WithCancel(w.ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		now := func() time.Time { return time.Now().Add(time.Duration(w.ahead.Load())) }
		if err := Run(ctx, Config{Log: w.log, Tick: tick, Sweep: w.sweep, Now: now}); err != nil {
			w.t.Errorf("reaper: %v", err)
		}
	}()
	stop = func() { cancel(); <-done }
	w.t.Cleanup(stop)
	return stop
}

func (w *world) lease(l fleet.Lease) uint64 {
	w.t.Helper()
	_, rev, _, err := w.log.Lease(w.ctx, l.Host)
	if err == nil {
		rev, err = w.log.PutLease(w.ctx, l, rev)
	}
	if err != nil {
		w.t.Fatalf("put lease: %v", err)
	}
	return rev
}

func (w *world) sandbox(deadline time.Time, bodies ...sandbox.Body) sandbox.ID {
	w.t.Helper()
	id := sandbox.NewID()
	lifetime := max(time.Nanosecond, time.Until(deadline))
	all := append([]sandbox.Body{sandbox.Requested{Schedule: sandbox.Schedule{Lifetime: lifetime, RunBy: deadline}}}, bodies...)
	if _, err := w.log.AppendSandbox(w.ctx, "t", id, 0, 1, all...); err != nil {
		w.t.Fatalf("append sandbox: %v", err)
	}
	return id
}

// process writes a record of host h in epoch 1 and its entry in the catalog.
func (w *world) process(sbx sandbox.ID, exit *process.Exit, bodies ...process.Body) process.ID {
	w.t.Helper()
	return w.processAt(time.Now(), sbx, exit, bodies...)
}

// processAt is process with the host's clock at at.
func (w *world) processAt(at time.Time, sbx sandbox.ID, exit *process.Exit, bodies ...process.Body) process.ID {
	w.t.Helper()
	id := process.NewID(sbx)
	sum := process.Summary{ID: id, Tenant: "t", Host: "h", Epoch: 1, Started: at, PID: 7, Exit: exit}
	if exit != nil {
		sum.Ended = at
	}
	if _, err := w.log.PutSummary(w.ctx, &sum, 0); err != nil {
		w.t.Fatalf("put summary: %v", err)
	}
	wr := w.log.Writer(record.Ref{Host: "h", ID: id}, 1)
	if err := wr.Append(w.ctx, number(0, at, bodies)); err != nil {
		w.t.Fatalf("append: %v", err)
	}
	return id
}

// more appends to a record of host h.
func (w *world) more(id process.ID, bodies []process.Body) {
	w.t.Helper()
	wr := w.log.Writer(record.Ref{Host: "h", ID: id}, 1)
	if _, err := wr.Recover(w.ctx); err != nil {
		w.t.Fatalf("recover: %v", err)
	}
	if err := wr.Append(w.ctx, number(wr.Last(), time.Now(), bodies)); err != nil {
		w.t.Fatalf("append: %v", err)
	}
}

// record reads a whole record, to its end.
func (w *world) record(id process.ID) []process.Event {
	w.t.Helper()
	r := w.log.Read(record.Ref{Host: "h", ID: id}, 0)
	defer r.Close()
	var all []process.Event
	for {
		got, err := r.Next(w.ctx, time.Minute)
		all = append(all, got...)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			w.t.Fatalf("read after %d events: %v", len(all), err)
		}
	}
}

// finish checks that the record has exactly one end, as its last event.
func (w *world) finish(id process.ID) process.Exit {
	w.t.Helper()
	all := w.record(id)
	for i, e := range all {
		if fin, ok := e.Body.(process.Finished); ok != (i == len(all)-1) {
			w.t.Fatalf("event %d of %d is %s", i+1, len(all), e.Type())
		} else if ok {
			return fin.Exit
		}
	}
	w.t.Fatal("no events")
	return process.Exit{}
}

func (w *world) await(id sandbox.ID, p sandbox.Phase) sandbox.State {
	w.t.Helper()
	s, err := w.view.AwaitSandbox(w.ctx, id, func(s *sandbox.State) bool { return s.Phase == p })
	if err != nil {
		w.t.Fatalf("sandbox is %s, want %s: %v", s.Phase, p, err)
	}
	return s
}

var (
	placed  = sandbox.Placed{Host: "h", Epoch: 1}
	running = sandbox.Running{Driver: "direct"}
	begun   = []process.Body{process.Accepted{}, process.Started{PID: 7}}
)

func TestDeadlineStops(t *testing.T) {
	w := newWorld(t, eventstest.Start(t))
	w.lease(fleet.Lease{Host: "h", Epoch: 1, TTL: time.Minute})
	w.reap()
	w.reap() // several may run
	soon := w.sandbox(time.Now().Add(150*time.Millisecond), placed, running)
	later := w.sandbox(time.Now().Add(time.Hour), placed, running)
	waits := w.sandbox(time.Now().Add(-time.Second))
	s := w.await(soon, sandbox.PhaseStopping)
	if s.Cause != sandbox.CauseTimeout || s.Seq != 4 {
		t.Errorf("stopped by %q at event %d; want timeout at 4", s.Cause, s.Seq)
	}
	if s := w.await(waits, sandbox.PhaseDestroyed); s.Cause != sandbox.CauseLate {
		t.Errorf("a sandbox that was not placed in time ended by %q, want %q", s.Cause, sandbox.CauseLate)
	}
	if s, _ := w.view.Sandbox(later); s.Phase != sandbox.PhaseRunning {
		t.Errorf("a sandbox with an hour left is %s", s.Phase)
	}
}

func TestMovedDeadlineCounts(t *testing.T) {
	w := newWorld(t, eventstest.Start(t))
	w.reap()
	id := w.sandbox(time.Now().Add(time.Hour), placed, running)
	w.await(id, sandbox.PhaseRunning)
	_, err := w.view.ChangeSandbox(w.ctx, id, func(sandbox.State) ([]sandbox.Body, error) {
		return []sandbox.Body{sandbox.DeadlineSet{Deadline: time.Now()}}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	w.await(id, sandbox.PhaseStopping)
}

// A deadline that passed while no reaper ran is due when one starts.
func TestDeadlineSurvivesRestart(t *testing.T) {
	w := newWorld(t, eventstest.Start(t))
	w.reap()()
	id := w.sandbox(time.Now(), placed, running)
	w.reap()
	w.await(id, sandbox.PhaseStopping)
}

// E-242: an idle sandbox ends once, with two reapers, and with one that starts later.
func TestIdleSandboxEndsOnce(t *testing.T) {
	w := newWorld(t, eventstest.Start(t))
	id := sandbox.NewID()
	req := sandbox.Requested{Schedule: sandbox.Schedule{Idle: 100 * time.Millisecond, HardEnd: time.Now().Add(time.Hour)}}
	if _, err := w.log.AppendSandbox(w.ctx, "t", id, 0, 1, req, placed, running); err != nil {
		t.Fatal(err)
	}
	w.reap()
	w.reap()
	if s := w.await(id, sandbox.PhaseStopping); s.Cause != sandbox.CauseTimeout || s.Seq != 4 {
		t.Errorf("stopped by %q at event %d", s.Cause, s.Seq)
	}
	w.await(w.sandbox(time.Now(), placed, running), sandbox.PhaseStopping) // in a later pass
	if s, _ := w.view.Sandbox(id); s.Seq != 4 {
		t.Errorf("%d events, want one end", s.Seq)
	}
}

// A sandbox ends at its hard end, whatever its clients do, in any phase: with several reapers, and
// if the one that has warned it is gone by then.
func TestHardEnd(t *testing.T) {
	w := newWorld(t, eventstest.Start(t))
	end := time.Now().Add(time.Hour)
	var boxes []sandbox.ID
	for _, phase := range [][]sandbox.Body{
		{}, {placed}, {placed, running}, {placed, running, sandbox.Pausing{}}, {placed, running, sandbox.Pausing{}, sandbox.Paused{}},
		{placed, running, sandbox.Pausing{}, sandbox.Paused{}, sandbox.Resuming{Lifetime: 9 * time.Hour}},
		{placed, running, sandbox.Pausing{}, sandbox.Paused{}, sandbox.Resuming{Lifetime: 9 * time.Hour}, sandbox.Resumed{}},
		{placed, running, sandbox.DeadlineSet{Deadline: end.Add(9 * time.Hour)}},
	} {
		id := sandbox.NewID()
		req := sandbox.Requested{Schedule: sandbox.Schedule{Lifetime: 2 * time.Hour, HardEnd: end, Warning: time.Minute}, OnTimeout: sandbox.OnTimeoutPause}
		if _, err := w.log.AppendSandbox(w.ctx, "t", id, 0, 1, append([]sandbox.Body{req}, phase...)...); err != nil {
			t.Fatal(err)
		}
		boxes = append(boxes, id)
	}
	warned := boxes[2]
	first, second := w.reap(), w.reap()
	w.ahead.Store(int64(59*time.Minute + time.Second))
	if _, err := w.view.AwaitSandbox(w.ctx, warned, func(s *sandbox.State) bool { return s.Warned }); err != nil {
		t.Fatal(err)
	}
	first()
	second()
	w.ahead.Store(int64(2 * time.Hour)) // while no reaper runs
	w.reap()
	w.reap()
	for i, id := range boxes {
		s, err := w.view.AwaitSandbox(w.ctx, id, func(s *sandbox.State) bool { return s.Over() || s.Phase == sandbox.PhaseStopping })
		if err != nil || s.Cause != sandbox.CauseHardEnd || s.Deadline.After(end) {
			t.Errorf("sandbox %d: %s by %q, deadline %v; %v", i, s.Phase, s.Cause, s.Deadline, err)
		}
	}
	if s, _ := w.view.Sandbox(warned); s.Seq != 5 { // requested, placed, running, warned, stopping
		t.Errorf("%d events, want one warning and one end", s.Seq)
	}
}

// The records of a dead host end as lost, once, with any number of reapers, and an observed exit
// keeps its code.
func TestADeadHostsRecordsEndAsLost(t *testing.T) {
	w := newWorld(t, eventstest.Start(t))
	w.lease(fleet.Lease{Host: "h", Epoch: 1, TTL: 200 * time.Millisecond})
	sbx := w.sandbox(time.Now().Add(time.Hour), placed, running)
	stops := w.sandbox(time.Now().Add(time.Hour), placed, running, sandbox.Stopping{Cause: sandbox.CauseUser})
	three := int32(3)
	exit := process.Exit{Code: &three, Cause: process.CauseExited}
	runs := w.process(sbx, nil, begun...)
	noted := w.process(sbx, &exit, begun...)
	exited := w.process(sbx, nil, append(begun[:2:2], process.Exited{Exit: exit})...)
	outlived := slices.Concat(begun[:2], []process.Body{process.Exited{Exit: exit}})
	for i := range 100 {
		outlived = append(outlived, process.Wrote{Stream: process.Stdout, Offset: uint64(i), Data: []byte("x")})
	}
	printing := w.process(sbx, nil, outlived[:50]...)
	w.more(printing, outlived[50:])
	ended := w.process(sbx, &exit, append(begun[:2:2], process.Finished{Exit: exit})...)
	never := w.process(sbx, nil)
	w.reap()
	w.reap()
	for _, id := range []process.ID{runs, never} {
		if x := w.finish(id); x.Seen() || x.Cause != process.CauseHostLost {
			t.Errorf("a running process ended as %+v; want lost without a code", x)
		}
	}
	for _, id := range []process.ID{noted, exited, printing, ended} {
		if x := w.finish(id); x.Code == nil || *x.Code != 3 || x.Cause != process.CauseExited {
			t.Errorf("a process with an observed exit ended as %+v; want 3", x)
		}
	}
	w.await(sbx, sandbox.PhaseLost)
	w.await(stops, sandbox.PhaseLost)
	if h, _ := w.view.Host("h"); !h.Gone {
		t.Error("the host is not declared gone")
	}
	if err := w.view.Sync(w.ctx); err != nil {
		t.Fatal(err)
	}
	for _, id := range []process.ID{runs, noted, exited, printing, ended, never} {
		if s, _, _ := w.view.Process(id); s.Active() {
			t.Errorf("%s is still active in the catalog", id)
		}
	}
}

func TestALiveHostKeepsItsRecords(t *testing.T) {
	w := newWorld(t, eventstest.Start(t))
	l := fleet.Lease{Host: "h", Epoch: 1, TTL: 3 * time.Second} // longer than a loaded machine may delay a renewal
	w.lease(l)
	sbx := w.sandbox(time.Now().Add(time.Hour), placed, running)
	w.reap()
	beat := time.NewTicker(l.TTL / 10)
	defer beat.Stop()
	for range 20 {
		<-beat.C
		w.lease(l)
	}
	if s, _ := w.view.Sandbox(sbx); s.Phase != sandbox.PhaseRunning {
		t.Errorf("sandbox of a live host is %s", s.Phase)
	}
}

// An outage of NATS does not make a host lost: its lease time counts only while the reaper
// could observe renewals.
func TestOutageLosesNothing(t *testing.T) {
	srv := eventstest.Start(t)
	w := newWorld(t, srv)
	lease := fleet.Lease{Host: "h", Epoch: 1, TTL: 3 * time.Second}
	w.lease(lease)
	sbx := w.sandbox(time.Now().Add(time.Hour), placed, running)
	w.await(sbx, sandbox.PhaseRunning)
	w.reap()
	h, _ := w.view.Host("h")
	srv.Stop()
	<-time.After(time.Until(h.Received.Add(2 * h.TTL)))
	go srv.Resume()
	lease.TTL = time.Minute
	rev := w.lease(lease)
	if err := w.view.Sync(w.ctx); err != nil {
		t.Fatal(err)
	}
	if s, _ := w.view.Sandbox(sbx); s.Phase != sandbox.PhaseRunning {
		t.Errorf("after an outage the sandbox is %s", s.Phase)
	}
	if h, _ := w.view.Host("h"); h.Gone || h.Rev != rev {
		t.Errorf("after an outage the host is %+v", h)
	}
}

// A host that returns with a new epoch keeps the processes that it starts then.
func TestANewEpochIsNotOrphaned(t *testing.T) {
	w := newWorld(t, eventstest.Start(t))
	w.lease(fleet.Lease{Host: "h", Epoch: 1, Gone: true})
	old := w.sandbox(time.Now().Add(time.Hour), placed, running)
	w.reap()
	w.await(old, sandbox.PhaseLost)
	w.lease(fleet.Lease{Host: "h", Epoch: 2, TTL: time.Minute})
	young := w.sandbox(time.Now().Add(time.Hour), sandbox.Placed{Host: "h", Epoch: 2}, running)
	due := w.sandbox(time.Now().Add(10*tick), placed, running)
	w.await(due, sandbox.PhaseStopping) // ten passes later
	if s, _ := w.view.Sandbox(young); s.Phase != sandbox.PhaseRunning {
		t.Errorf("sandbox of the new epoch is %s", s.Phase)
	}
}

// At its deadline a sandbox is paused if that was requested and its host can; afterwards its
// deadline is ignored.
func TestDeadlinePauses(t *testing.T) {
	w := newWorld(t, eventstest.Start(t))
	w.lease(fleet.Lease{Host: "h", Epoch: 1, TTL: time.Minute})
	w.reap()
	can := sandbox.Running{Driver: "d", Can: sandbox.Abilities{Pause: true}}
	ask := func(onTimeout string, runs sandbox.Running) sandbox.ID {
		id := sandbox.NewID()
		req := sandbox.Requested{Schedule: sandbox.Schedule{Lifetime: time.Nanosecond}, OnTimeout: onTimeout}
		if _, err := w.log.AppendSandbox(w.ctx, "t", id, 0, 1, req, placed, runs); err != nil {
			t.Fatal(err)
		}
		return id
	}
	pauses, cannot, kills := ask(sandbox.OnTimeoutPause, can), ask(sandbox.OnTimeoutPause, running), ask(sandbox.OnTimeoutKill, can)
	if s := w.await(pauses, sandbox.PhasePausing); s.Cause != sandbox.CauseTimeout {
		t.Errorf("paused by %q", s.Cause)
	}
	if s := w.await(ask(sandbox.OnTimeoutPauseFiles, can), sandbox.PhasePausing); !s.Reboot {
		t.Error("the memory is kept of a sandbox that pauses with files only")
	}
	w.await(cannot, sandbox.PhaseStopping)
	w.await(kills, sandbox.PhaseStopping)
	_, err := w.view.ChangeSandbox(w.ctx, pauses, func(sandbox.State) ([]sandbox.Body, error) {
		return []sandbox.Body{sandbox.Paused{}}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	w.await(w.sandbox(time.Now().Add(10*tick), placed, running), sandbox.PhaseStopping) // ten passes later
	if s, _ := w.view.Sandbox(pauses); s.Phase != sandbox.PhasePaused {
		t.Errorf("a paused sandbox whose deadline passed is %s", s.Phase)
	}
}

// An unreachable record delays only its own sandbox: no deadline, no other dead host, no other
// sandbox of its host.
func TestAnUnreachableRecordDelaysOnlyItsSandbox(t *testing.T) {
	srv := eventstest.Start(t)
	w := newWorld(t, srv)
	later := time.Now().Add(time.Hour)
	w.lease(fleet.Lease{Host: "h", Epoch: 1, TTL: 200 * time.Millisecond})
	stuck := w.sandbox(later, placed, running)
	w.process(stuck, nil, begun...)
	free := w.sandbox(later, placed, running)
	eventstest.Drop(t, srv, "OUT_00")
	w.reap()
	w.await(free, sandbox.PhaseLost)
	w.lease(fleet.Lease{Host: "other", Epoch: 1, TTL: 200 * time.Millisecond})
	silent := w.sandbox(later, sandbox.Placed{Host: "other", Epoch: 1}, running)
	w.lease(fleet.Lease{Host: "lives", Epoch: 1, TTL: time.Hour})
	due := w.sandbox(time.Now(), sandbox.Placed{Host: "lives", Epoch: 1}, running)
	w.await(due, sandbox.PhaseStopping)
	w.await(silent, sandbox.PhaseLost)
	if s, _ := w.view.Sandbox(stuck); s.Over() {
		t.Errorf("the sandbox whose process has no end is %s", s.Phase)
	}
}

// reaper returns a reaper whose passes the test runs, on the world's view.
func (w *world) reaper() *reaper {
	return &reaper{
		cfg: Config{Now: time.Now, Log: w.log, Slog: slog.New(slog.DiscardHandler), Tick: tick}, view: w.view, settled: make(map[string]uint64),
	}
}

// gone makes host h leave, and returns it as the dead hosts.
func (w *world) gone() map[string]fleet.Host {
	w.t.Helper()
	w.lease(fleet.Lease{Host: "h", Epoch: 1, Gone: true})
	w.sync()
	h, _ := w.view.Host("h")
	return map[string]fleet.Host{"h": h}
}

func (w *world) sync() {
	w.t.Helper()
	if err := w.view.Sync(w.ctx); err != nil {
		w.t.Fatal(err)
	}
}

// hasEnd reports whether the record of a process of host h has an end.
func (w *world) hasEnd(id process.ID) bool {
	w.t.Helper()
	tip, err := w.log.Tail(w.ctx, record.Ref{Host: "h", ID: id})
	if err != nil && !kind.Is(err, kind.NotFound) {
		w.t.Fatal(err)
	}
	return tip.Finished != nil
}

// A host that returns while the reaper still ends the records of its earlier epoch keeps the
// records that it took over.
func TestRecordsOfANewEpochAreKept(t *testing.T) {
	w := newWorld(t, eventstest.Start(t))
	sbx := w.sandbox(time.Now().Add(time.Hour), placed, running)
	id := w.process(sbx, nil, begun...)
	dead := w.gone()
	w.lease(fleet.Lease{Host: "h", Epoch: 2, TTL: time.Minute})
	w.sync()
	w.reaper().tearDown(w.ctx, dead)
	if s, _ := w.view.Sandbox(sbx); s.Phase != sandbox.PhaseRunning {
		t.Errorf("its sandbox is %s", s.Phase)
	}
	if w.hasEnd(id) {
		t.Error("its process has an end")
	}
}

// A host is checked until it has no open records, even if only one record was unreachable, which
// takes no more than its part of a pass.
func TestAHostIsSettledWithoutOpenRecords(t *testing.T) {
	srv := eventstest.Start(t)
	w := newWorld(t, srv)
	over := w.sandbox(time.Now().Add(time.Hour), placed, running, sandbox.Lost{})
	id := w.process(over, nil, begun...)
	dead := w.gone()
	eventstest.Drop(t, srv, "OUT_00")
	r, start := w.reaper(), time.Now()
	r.tearDown(w.ctx, dead)
	if took := time.Since(start); took > stepTimeout/2 {
		t.Errorf("one record took %v of a pass", took)
	}
	eventstest.Open(t, srv) // creates missing streams
	r.tearDown(w.ctx, dead)
	if !w.hasEnd(id) {
		t.Error("the process has no end")
	}
}

// A process whose entry arrives after its dead host was settled ends, too.
func TestALateEntryOfADeadHostEnds(t *testing.T) {
	w := newWorld(t, eventstest.Start(t))
	over := w.sandbox(time.Now().Add(time.Hour), placed, running, sandbox.Lost{})
	dead, r := w.gone(), w.reaper()
	r.tearDown(w.ctx, dead)
	if len(r.settled) == 0 {
		t.Fatal("a host without open records is not settled")
	}
	id := w.process(over, nil, begun...)
	w.sync()
	r.tearDown(w.ctx, dead)
	if !w.hasEnd(id) {
		t.Error("the process has no end")
	}
}

// A tear-down continues during later passes, and only one runs at a time.
func TestOnlyOneTearDownRunsAtATime(t *testing.T) {
	w := newWorld(t, eventstest.Start(t))
	sbx := w.sandbox(time.Now().Add(time.Hour), placed, running)
	w.gone()
	r := w.reaper()
	for _, busy := range []bool{true, false} {
		r.tearingDown.Store(busy)
		r.pass(w.ctx)
		r.work.Wait()
		if err := w.view.Sync(w.ctx); err != nil {
			t.Fatal(err)
		}
		if s, _ := w.view.Sandbox(sbx); s.Over() == busy {
			t.Errorf("while another tear-down runs: %v; the sandbox is %s", busy, s.Phase)
		}
	}
}

// The snapshot of a fork whose gateway died is deleted; other snapshots are kept.
func TestAbandonedForkSnapshotsAreDeleted(t *testing.T) {
	w := newWorld(t, eventstest.Start(t))
	w.sweep = 20 * time.Millisecond
	old := time.Now().Add(-2 * forkExpiry)
	put := func(s sandbox.Snapshot) sandbox.SnapshotID {
		s.ID, s.Tenant, s.Host = sandbox.NewSnapshotID(), "t", "h"
		if err := w.log.PutSnapshot(w.ctx, &s); err != nil {
			t.Fatal(err)
		}
		return s.ID
	}
	named := put(sandbox.Snapshot{Taken: old, Name: "mine"})
	layer := put(sandbox.Snapshot{Taken: old, Internal: true, Layer: "sum"})
	young := put(sandbox.Snapshot{Taken: time.Now(), Internal: true})
	left := put(sandbox.Snapshot{Taken: old, Internal: true})
	changed, stop := w.view.Changes()
	defer stop()
	w.reap()
	for gone := false; !gone; {
		select {
		case <-changed:
		case <-w.ctx.Done():
			t.Fatal("the snapshot is not deleted")
		}
		s, _ := w.view.Snapshot(left)
		gone = s.Deleted
	}
	for _, id := range []sandbox.SnapshotID{named, layer, young} {
		if s, ok := w.view.Snapshot(id); !ok || s.Deleted {
			t.Errorf("%+v was deleted", s)
		}
	}
}
