package scheduler

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/fleet"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
)

func TestInOrder(t *testing.T) {
	tests := []struct {
		name    string
		waiting string // tenants, oldest first
		running map[string]int
		want    string // tenant and number of its request
	}{
		{"one tenant: oldest first", "aaa", map[string]int{"a": 7}, "a0 a1 a2"},
		{"equal tenants take turns", "aabb", nil, "a0 b0 a1 b1"},
		{"the tenant with fewer sandboxes goes first", "aaab", map[string]int{"a": 2, "b": 0}, "b0 a0 a1 a2"},
		{"many requests of a tenant do not overtake others", "baaa", map[string]int{"a": 1, "b": 1}, "b0 a0 a1 a2"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var all []sandbox.State
			seen := map[string]int{}
			for _, r := range tt.waiting {
				tenant := string(r)
				all = append(all, sandbox.State{Tenant: tenant, ID: sandbox.ID(fmt.Sprint(tenant, seen[tenant]))})
				seen[tenant]++
			}
			slices.Reverse(all) // in the order of a view
			var got []string
			for _, st := range placementOrder(all, tt.running) {
				got = append(got, string(st.ID))
			}
			if strings.Join(got, " ") != tt.want {
				t.Errorf("order %v, want %s", got, tt.want)
			}
		})
	}
}

// A request that waits for a host reserves it, even from younger ones that fit into its free
// capacity.
func TestAWaitingRequestReservesItsHosts(t *testing.T) {
	hosts := []hostCapacity{{Host: "a", Capacity: 9, Memory: quota{1000, 500}}, {Host: "b", Capacity: 9, Memory: quota{100, 0}}}
	v := place(&sandbox.Requested{Resources: sandbox.Resources{MemoryMiB: 600}}, origin{}, hosts)
	if !v.temporary() || len(v.Full) != 1 || v.Full[0].Host != "a" {
		t.Fatalf("place = %+v; want to wait for a", v)
	}
	v.reserve()
	if v := place(&sandbox.Requested{Resources: sandbox.Resources{MemoryMiB: 200}}, origin{}, hosts); v.Host != nil || !v.temporary() {
		t.Errorf("a younger request is placed on %+v; want it to wait", v.Host)
	}
	if v := place(&sandbox.Requested{Resources: sandbox.Resources{MemoryMiB: 50}}, origin{}, hosts); v.Host == nil || v.Host.Host != "b" {
		t.Errorf("a request that fits elsewhere is placed on %+v; want b", v.Host)
	}
	if v := place(&sandbox.Requested{Resources: sandbox.Resources{MemoryMiB: 2000}}, origin{}, hosts); v.temporary() || v.Refused == nil {
		t.Errorf("a request beyond the capacity of every host = %+v; want refused", v)
	}
}

// free ends a sandbox, so that its host has capacity for another.
func free(t *testing.T, end func(sandbox.ID, ...sandbox.Body), id sandbox.ID) {
	t.Helper()
	end(id, sandbox.Stopping{Cause: sandbox.CauseUser}, sandbox.Destroyed{Cause: sandbox.CauseUser})
}

// Requests for a full host wait in order, and their records have the reason. Each end of a
// sandbox places the oldest one, even if schedulers were killed in between. A request that has
// waited until its PlaceBy is refused.
func TestRequestsWaitInOrder(t *testing.T) {
	log := eventstest.Open(t, eventstest.Start(t))
	lease(t, log, fleet.Lease{Host: "a", Epoch: 1, Capacity: 3})
	stop := start(t, log, nil)
	view := eventstest.View(t, log)
	ctx := testContext(t)
	change := func(id sandbox.ID, bodies ...sandbox.Body) {
		t.Helper()
		if _, err := view.ChangeSandbox(ctx, id, func(sandbox.State) ([]sandbox.Body, error) { return bodies, nil }); err != nil {
			t.Fatal(err)
		}
	}
	const waiting = 50
	var running, queue []sandbox.ID
	for i := range 3 + waiting {
		id := sandbox.NewID()
		if _, err := view.CreateSandbox(ctx, "t", id, sandbox.Requested{Schedule: sandbox.Schedule{PlaceBy: time.Now().Add(time.Minute)}}); err != nil {
			t.Fatal(err)
		}
		if i < 3 {
			running = append(running, id)
		} else {
			queue = append(queue, id)
		}
	}
	for _, id := range queue {
		s, err := view.AwaitSandbox(ctx, id, func(s *sandbox.State) bool { return s.Phase == sandbox.PhaseQueued })
		if err != nil || s.Queued == "" {
			t.Fatalf("%s is %s for %q, %v; want queued for a reason", id, s.Phase, s.Queued, err)
		}
	}
	for i, id := range queue[:20] {
		if i == 10 { // while 40 wait
			stop()
			start(t, log, nil)
			start(t, log, nil)
		}
		free(t, change, running[0])
		s, err := view.AwaitSandbox(ctx, id, decided)
		if err != nil || s.Phase != sandbox.PhasePlaced {
			t.Fatalf("the %dth in the queue is %s, %v; want placed", i, s.Phase, err)
		}
		running = append(running[1:], id)
		if n := len(view.Sandboxes(func(s *sandbox.State) bool { return !s.Over() && s.Host == "a" })); n > 3 {
			t.Fatalf("%d sandboxes on a host for 3", n)
		}
	}
	if got := len(view.Sandboxes(func(s *sandbox.State) bool { return s.Phase == sandbox.PhaseQueued })); got != waiting-20 {
		t.Errorf("%d are queued, want %d", got, waiting-20)
	}
	begun := time.Now()
	s, err := create(ctx, view, sandbox.Requested{Schedule: sandbox.Schedule{PlaceBy: begun.Add(200 * time.Millisecond)}})
	if took := time.Since(begun); err != nil || s.Refusal != kind.Exhausted || took < 200*time.Millisecond {
		t.Errorf("one more is %s %v after %v, %v; want refused as exhausted at PlaceBy", s.Phase, s.Refusal, took, err)
	}
}
