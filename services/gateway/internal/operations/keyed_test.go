package operations_test

import (
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/operations"
	"github.com/millrace/millrace/services/gateway/internal/provision"
)

// One sandbox is created however often, when and to whichever gateway a create request is
// sent with its key.
func TestAKeyMakesOneSandbox(t *testing.T) {
	h := newFixture(t)
	gateways := []*operations.Operations{h.Operations, h.newOperations()}
	by := provision.Idempotency{Key: "k", Request: []byte("body")}
	create := func(c *operations.Operations, p core.Principal, by provision.Idempotency) (sandbox.State, error) {
		return c.Provisioner.CreateKeyedSandbox(t.Context(), p, by, sandbox.Requested{Template: "base", Schedule: sandbox.Schedule{Lifetime: time.Hour}})
	}
	var mu sync.Mutex
	ids := map[sandbox.ID]bool{}
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			st, err := create(gateways[i%2], alice, by)
			if err != nil {
				t.Errorf("create: %v", err)
			}
			mu.Lock()
			defer mu.Unlock()
			ids[st.ID] = true
		})
	}
	wg.Wait()
	if len(ids) != 1 {
		t.Fatalf("made %v, want one sandbox", ids)
	}
	st, err := create(h.newOperations(), alice, by) // a gateway that started later
	if err != nil || !ids[st.ID] || len(h.view.Sandboxes(func(*sandbox.State) bool { return true })) != 1 {
		t.Errorf("retry: %s, %v", st.ID, err)
	}
	_, err = create(h.Operations, alice, provision.Idempotency{Key: "k", Request: []byte("another")})
	wantKind(t, "different request with the key", err, kind.Conflict)
	if got := kind.Code(err); got != "idempotency_key_reused" {
		t.Errorf("code %q", got)
	}
	other, err := create(h.Operations, bob, by)
	if err != nil || ids[other.ID] {
		t.Errorf("another tenant's key: %s, %v", other.ID, err)
	}
	if err := h.Lifecycle.DestroySandbox(t.Context(), alice, st.ID); err != nil {
		t.Fatal(err)
	}
	ended, ok, err := h.Provisioner.KeyedSandbox(t.Context(), alice, by)
	if err != nil || !ok || ended.ID != st.ID || !ended.Over() {
		t.Errorf("after the end: %s, %v, %v; want the same sandbox", ended.Phase, ok, err)
	}
	_, _, err = h.Provisioner.KeyedSandbox(t.Context(), core.Principal{Tenant: "alice", Sandbox: st.ID}, by)
	wantKind(t, "a sandbox's token", err, kind.Denied)
}

// A refused request does not use up its key.
func TestRefusedCreateCanBeRetried(t *testing.T) {
	h := newFixture(t)
	by := provision.Idempotency{Key: "k", Request: []byte("body")}
	create := func() (sandbox.State, error) {
		return h.Provisioner.CreateKeyedSandbox(t.Context(), alice, by, sandbox.Requested{Template: "base"})
	}
	h.host.SetRefuse(kind.Exhausted)
	for range 2 {
		_, err := create()
		wantKind(t, "create on a full host", err, kind.Exhausted)
	}
	h.host.SetRefuse(0)
	st, err := create()
	if err != nil || !st.IsRunning() {
		t.Fatalf("with free capacity: %s, %v", st.Phase, err)
	}
	if again, err := create(); err != nil || again.ID != st.ID {
		t.Errorf("retry: %s, %v; want %s", again.ID, err, st.ID)
	}
}

// A sandbox's lifetime counts from when it runs, however long its creation took.
func TestALifetimeCountsFromWhenItRuns(t *testing.T) {
	h := newFixture(t)
	st, err := h.Provisioner.CreateSandbox(t.Context(), alice, sandbox.Requested{Template: "base", Schedule: sandbox.Schedule{Lifetime: time.Minute}})
	if err != nil || !st.Deadline.Equal(st.Started.Add(time.Minute)) {
		t.Errorf("started %v, ends %v, %v; want a minute", st.Started, st.Deadline, err)
	}
}
