package operations_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/record"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/operations"
	"github.com/millrace/millrace/services/gateway/internal/procs"
)

var keyed = procs.StartOptions{IdempotencyKey: "k"}

// refusedStart starts a process with the key while the host is unreachable, until its record ends.
func (h *fixture) refusedStart(sbx sandbox.ID, spec process.Spec) process.ID {
	h.t.Helper()
	ctx, cancel := context.WithCancel(h.t.Context())
	done := make(chan error, 1)
	g := h.impatient()
	go func() { done <- g.Procs.Run(ctx) }() // ends what no host claims
	h.host.SetIgnoreStarts(true)
	a, err := g.Procs.Start(h.t.Context(), alice, sbx, spec, keyed)
	h.host.SetIgnoreStarts(false)
	id := a.ID
	if err == nil {
		defer a.Reader.Close()
		got := all(h.t, a.Reader.Reader)
		if fin, ok := got[len(got)-1].Body.(process.Finished); !ok || fin.Exit.Cause != process.CauseNotStarted {
			h.t.Fatalf("the record ended with %+v, want a refusal", got[len(got)-1].Body)
		}
	} else {
		wantKind(h.t, "start while the host is away", err, kind.Unavailable)
		id = process.KeyedID(sbx, "k")
		r := h.log.Read(record.Ref{Host: h.host.Name, ID: id}, 0)
		defer r.Close()
		all(h.t, r)
	}
	cancel()
	if err := <-done; err != nil {
		h.t.Errorf("Run: %v", err)
	}
	return id
}

// A start that its host never took does not use up its key: all retries, at whichever gateway,
// are one process.
func TestARefusedStartRunsOnceAtTheNextRetry(t *testing.T) {
	h := newFixture(t)
	st := h.sandbox(alice)
	spec := process.Spec{Cmd: "echo", Args: []string{"once"}}
	first := h.refusedStart(st.ID, spec)
	other := spec
	other.Args = []string{"other"}
	if err := h.Core.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err := h.Procs.Start(t.Context(), alice, st.ID, other, keyed)
	wantKind(t, "same key, other command", err, kind.Conflict)

	gateways := []*operations.Operations{h.Operations, h.newOperations()}
	ids := make([]process.ID, 8)
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() {
			a, err := gateways[i%2].Procs.Start(t.Context(), alice, st.ID, spec, keyed)
			if err != nil {
				t.Errorf("retry %d: %v", i, err)
				return
			}
			ids[i] = a.ID
			if n := len(all(t, a.Reader.Reader)); n != 5 {
				t.Errorf("retry %d: %d events, want 5", i, n)
			}
		})
	}
	wg.Wait()
	if slices.Contains(ids, first) || len(slices.Compact(ids)) != 1 {
		t.Fatalf("ids %v after %s, want one new id", ids, first)
	}
	if n := h.host.Starts(ids[0]); n != 1 {
		t.Errorf("started %d times", n)
	}
	if n := h.host.Starts(first); n != 0 {
		t.Errorf("the refused try started %d times", n)
	}
}

// A retry that finds a refusal of an earlier request's command moves on to the next try, also
// if the catalog does not have the refusal yet.
func TestRetryAfterRefusalOfEarlierCommand(t *testing.T) {
	h := newFixture(t)
	st := h.sandbox(alice)
	spec := process.Spec{Cmd: "echo", Args: []string{"once"}}
	first := process.KeyedID(st.ID, "k")
	err := h.log.Writer(record.Ref{Host: h.host.Name, ID: first}, 1).Append(t.Context(), []process.Event{
		{Seq: 1, Body: process.Accepted{Spec: spec, Command: "earlier", SpecHash: spec.Hash(eventstest.Ring(t, h.log), alice.Tenant, st.ID), Tenant: alice.Tenant}},
		{Seq: 2, Body: process.Failed{Kind: uint32(kind.Deadline), Message: "the command came too late"}},
		{Seq: 3, Body: process.Finished{Exit: process.Exit{Cause: process.CauseNotStarted}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	a, err := h.Procs.Start(t.Context(), alice, st.ID, spec, keyed)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(all(t, a.Reader.Reader)); n != 5 || a.ID == first || h.host.Starts(a.ID) != 1 {
		t.Errorf("%s: %d events, %d starts; want an id other than %s, 5 and 1", a.ID, n, h.host.Starts(a.ID), first)
	}
}
