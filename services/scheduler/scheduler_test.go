package scheduler

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/fleet"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
)

// start runs a scheduler until the test ends or stop is called.
func start(t testing.TB, log *events.Log, fault func(string) error) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, Config{Log: log, Tick: 50 * time.Millisecond, Fault: fault}) }()
	stop = func() error { cancel(); err := <-done; done <- err; return err }
	t.Cleanup(func() { stop() })
	return stop
}

func lease(t *testing.T, log *events.Log, l fleet.Lease) uint64 {
	t.Helper()
	if l.TTL == 0 {
		l.TTL = time.Minute
	}
	_, rev, _, err := log.Lease(t.Context(), l.Host)
	if err == nil {
		rev, err = log.PutLease(t.Context(), l, rev)
	}
	if err != nil {
		t.Fatalf("put lease: %v", err)
	}
	return rev
}

// create requests a sandbox and returns its state once it is placed or refused.
func create(ctx context.Context, v *catalog.View, req sandbox.Requested) (sandbox.State, error) {
	id := sandbox.NewID()
	if _, err := v.CreateSandbox(ctx, "t", id, req); err != nil {
		return sandbox.State{}, err
	}
	return v.AwaitSandbox(ctx, id, decided)
}

// decided reports whether a sandbox was placed or refused.
func decided(s *sandbox.State) bool { return s.Phase != sandbox.PhaseNone && !s.AwaitsPlacement() }

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // hundreds of creates on a loaded machine
	t.Cleanup(cancel)
	return ctx
}

func TestNoHostIsUnavailable(t *testing.T) {
	log := eventstest.Open(t, eventstest.Start(t))
	start(t, log, nil)
	s, err := create(testContext(t), eventstest.View(t, log), sandbox.Requested{})
	if err != nil || s.Phase != sandbox.PhaseRefused || s.Refusal != kind.Unavailable {
		t.Errorf("create = %s %v, %v; want refused as unavailable", s.Phase, s.Refusal, err)
	}
}

func TestAHostThatLeftIsUnavailable(t *testing.T) {
	log := eventstest.Open(t, eventstest.Start(t))
	lease(t, log, fleet.Lease{Host: "a", Epoch: 1, Capacity: 9, Gone: true})
	start(t, log, nil)
	s, err := create(testContext(t), eventstest.View(t, log), sandbox.Requested{})
	if err != nil || s.Refusal != kind.Unavailable {
		t.Errorf("create = %s %v, %v; want refused as unavailable", s.Phase, s.Refusal, err)
	}
}

func TestSilentHostIsUnavailable(t *testing.T) {
	log := eventstest.Open(t, eventstest.Start(t))
	lease(t, log, fleet.Lease{Host: "a", Epoch: 1, Capacity: 9, TTL: 50 * time.Millisecond})
	view := eventstest.View(t, log)
	h, _ := view.Host("a")
	<-time.After(time.Until(h.Received.Add(h.TTL)))
	start(t, log, nil)
	ctx := testContext(t)
	for { // the scheduler must observe the whole lease time
		s, err := create(ctx, view, sandbox.Requested{})
		if err != nil {
			t.Fatal(err)
		}
		if s.Refusal == kind.Unavailable {
			return
		}
	}
}

// starting returns the lease of a starting host with a capacity of one.
func starting() fleet.Lease {
	return fleet.Lease{Host: "a", Epoch: 1, Capacity: 1, Draining: true, Starting: true}
}

// Requests wait while the only host with capacity is starting, and the first one is placed.
func TestRequestsWaitForAStartingHost(t *testing.T) {
	log := eventstest.Open(t, eventstest.Start(t))
	lease(t, log, starting())
	lease(t, log, fleet.Lease{Host: "full", Epoch: 1})
	start(t, log, nil)
	view := eventstest.View(t, log)
	ctx := testContext(t)
	var ids []sandbox.ID
	for range 2 {
		id := sandbox.NewID()
		if _, err := view.CreateSandbox(ctx, "t", id, sandbox.Requested{Schedule: sandbox.Schedule{PlaceBy: time.Now().Add(5 * time.Second)}}); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	// Other requests are decided meanwhile; once this one is, the earlier ones were considered.
	if s, err := create(ctx, view, sandbox.Requested{VolumeHost: "nobody"}); err != nil || s.Refusal != kind.Unavailable {
		t.Errorf("an impossible request is %s %v, %v", s.Phase, s.Refusal, err)
	}
	for _, id := range ids {
		if s, _ := view.Sandbox(id); s.Phase != sandbox.PhaseQueued || !strings.Contains(s.Queued, "starting") {
			t.Fatalf("a waiting request is %s: %s", s.Phase, s.Cause)
		}
	}
	begun := starting()
	begun.Draining, begun.Starting = false, false
	lease(t, log, begun)
	first, err := view.AwaitSandbox(ctx, ids[0], decided)
	if err != nil || first.Host != "a" {
		t.Errorf("the first is %s %v, %v; want placed", first.Phase, first.Refusal, err)
	}
	second, err := view.AwaitSandbox(ctx, ids[1], decided)
	if err != nil || second.Refusal != kind.Exhausted {
		t.Errorf("the second is %s %v, %v; want refused as exhausted", second.Phase, second.Refusal, err)
	}
}

// A host may never finish starting; a waiting request is then refused.
func TestTheWaitForAStartingHostEnds(t *testing.T) {
	log := eventstest.Open(t, eventstest.Start(t))
	lease(t, log, starting())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	const wait = 300 * time.Millisecond
	go func() { done <- Run(ctx, Config{Log: log, Tick: 50 * time.Millisecond}) }()
	t.Cleanup(func() { cancel(); <-done })
	begun := time.Now()
	s, err := create(testContext(t), eventstest.View(t, log), sandbox.Requested{Schedule: sandbox.Schedule{PlaceBy: begun.Add(wait)}})
	if err != nil || s.Refusal != kind.Unavailable || !strings.Contains(s.Cause, "starting") {
		t.Errorf("it is %s %v (%s), %v; want refused as unavailable", s.Phase, s.Refusal, s.Cause, err)
	}
	if took := time.Since(begun); took < wait {
		t.Errorf("refused after %v, want no sooner than %v", took, wait)
	}
}

// With any number of schedulers, no capacity is used twice, and no request is refused while
// there is capacity.
func TestParallelCreatesNeverOverPlace(t *testing.T) {
	const creates = 300 // the work of three competing schedulers grows with the square
	log := eventstest.Open(t, eventstest.Start(t))
	lease(t, log, fleet.Lease{Host: "a", Epoch: 1, Capacity: 1})
	lease(t, log, fleet.Lease{Host: "b", Epoch: 1, Capacity: 9})
	start(t, log, nil)
	start(t, eventstest.Open(t, eventstest.Start(t)), nil) // a scheduler of another log has no effect
	start(t, log, nil)
	start(t, log, nil)
	view := eventstest.View(t, log)
	ctx := testContext(t)
	var g errgroup.Group
	var refused atomic.Int32
	for range creates {
		g.Go(func() error {
			s, err := create(ctx, view, sandbox.Requested{})
			switch {
			case err != nil:
				return err
			case s.Phase == sandbox.PhaseRefused && s.Refusal == kind.Exhausted:
				refused.Add(1)
			case s.Phase != sandbox.PhasePlaced:
				return fmt.Errorf("sandbox is %s, %v", s.Phase, s.Refusal)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	view.Sandboxes(func(s *sandbox.State) bool { got[s.Host]++; return false })
	if got["a"] != 1 || got["b"] != 9 || refused.Load() != creates-10 {
		t.Errorf("placed %d on a of 1, %d on b of 9, refused %d of %d", got["a"], got["b"], refused.Load(), creates-10)
	}
}

// BenchmarkPlace measures a placement with one scheduler, and with three that compete.
func BenchmarkPlace(b *testing.B) {
	for _, n := range []int{1, 3} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			log := eventstest.Open(b, eventstest.Start(b))
			if _, err := log.PutLease(b.Context(), fleet.Lease{Host: "a", Epoch: 1, TTL: time.Hour, Capacity: 1 << 30}, 0); err != nil {
				b.Fatal(err)
			}
			for range n {
				start(b, log, nil)
			}
			view := eventstest.View(b, log)
			var g errgroup.Group
			g.SetLimit(64)
			for b.Loop() {
				g.Go(func() error {
					s, err := create(b.Context(), view, sandbox.Requested{})
					if err == nil && s.Phase != sandbox.PhasePlaced {
						err = fmt.Errorf("sandbox is %s", s.Phase)
					}
					return err
				})
			}
			if err := g.Wait(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

func TestCapacityIsFreeAfterTheEnd(t *testing.T) {
	log := eventstest.Open(t, eventstest.Start(t))
	lease(t, log, fleet.Lease{Host: "a", Epoch: 7, Capacity: 1})
	start(t, log, nil)
	view := eventstest.View(t, log)
	ctx := testContext(t)
	for i := range 5 {
		s, err := create(ctx, view, sandbox.Requested{})
		if err != nil || s.Phase != sandbox.PhasePlaced || s.Host != "a" || s.Epoch != 7 {
			t.Fatalf("create %d = %+v, %v; want placed on a", i, s, err)
		}
		if s, err := create(ctx, view, sandbox.Requested{}); err != nil || s.Refusal != kind.Exhausted {
			t.Fatalf("create beside %d = %+v, %v; want exhausted", i, s, err)
		}
		_, err = view.ChangeSandbox(ctx, s.ID, func(sandbox.State) ([]sandbox.Body, error) {
			return []sandbox.Body{sandbox.Stopping{Cause: sandbox.CauseUser}, sandbox.Destroyed{Cause: sandbox.CauseUser}}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// A scheduler that dies between its choice and the append leaves no sandbox stuck.
func TestACrashBetweenChoiceAndAppend(t *testing.T) {
	log := eventstest.Open(t, eventstest.Start(t))
	lease(t, log, fleet.Lease{Host: "a", Epoch: 1, Capacity: 1})
	cut := errors.New("cut")
	picked := make(chan struct{})
	died := start(t, log, func(string) error { close(picked); return cut })
	view := eventstest.View(t, log)
	ctx := testContext(t)
	id := sandbox.NewID()
	if _, err := view.CreateSandbox(ctx, "t", id, sandbox.Requested{}); err != nil {
		t.Fatal(err)
	}
	<-picked
	if err := died(); err != nil && !errors.Is(err, cut) {
		t.Fatalf("first scheduler: %v", err)
	}
	if s, _ := view.Sandbox(id); s.Phase != sandbox.PhaseRequested {
		t.Fatalf("after the cut the sandbox is %s", s.Phase)
	}
	start(t, log, nil)
	s, err := view.AwaitSandbox(ctx, id, func(s *sandbox.State) bool { return s.Phase != sandbox.PhaseRequested })
	if err != nil || s.Phase != sandbox.PhasePlaced {
		t.Errorf("second scheduler: %s, %v; want placed", s.Phase, err)
	}
}

// A sandbox that is requested when NATS is back is placed, although no lease was observed for
// longer than the lease time.
func TestOutageDelaysAndDoesNotRefuse(t *testing.T) {
	srv := eventstest.Start(t)
	log := eventstest.Open(t, srv)
	short := fleet.Lease{Host: "a", Epoch: 1, Capacity: 5, TTL: 500 * time.Millisecond}
	lease(t, log, short)
	start(t, log, nil)
	view := eventstest.View(t, log)
	ctx := testContext(t)
	h, _ := view.Host("a")
	srv.Stop()
	<-time.After(time.Until(h.Received.Add(2 * h.TTL)))
	go srv.Resume()
	short.TTL = time.Minute
	lease(t, log, short) // as the host does as soon as it can
	s, err := create(ctx, view, sandbox.Requested{})
	if err != nil || s.Phase != sandbox.PhasePlaced {
		t.Errorf("after the outage: %s %v, %v; want placed", s.Phase, s.Refusal, err)
	}
}

// On a cluster of three servers that loses the leader of the sandboxes' stream, no capacity is
// used twice.
func TestParallelCreatesOnAClusterThatLosesItsLeader(t *testing.T) {
	if testing.Short() {
		t.Skip("an election takes seconds")
	}
	cluster := eventstest.StartCluster(t)
	log := cluster.Open()
	lease(t, log, fleet.Lease{Host: "a", Epoch: 1, Capacity: 10})
	start(t, log, nil)
	start(t, cluster.Open(), nil)
	view := eventstest.View(t, log)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var g errgroup.Group
	g.SetLimit(8)
	var decided atomic.Int32
	for range 40 {
		g.Go(func() error {
			s, err := create(ctx, view, sandbox.Requested{})
			if err == nil && s.Phase != sandbox.PhasePlaced && s.Refusal != kind.Exhausted {
				err = fmt.Errorf("sandbox is %s, %v", s.Phase, s.Refusal)
			}
			if decided.Add(1) == 5 {
				cluster.Stop(cluster.Leader("SBX"))
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if err := view.Sync(ctx); err != nil {
		t.Fatal(err)
	}
	placed := view.Sandboxes(func(s *sandbox.State) bool { return s.Host == "a" })
	if len(placed) != 10 {
		t.Errorf("placed %d of 10", len(placed))
	}
}
