package catalog

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/events/internal/codec"
	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/webhook"
)

func (v *View) applySandbox(m store.Message) error {
	tenant, id, events, err := codec.DecodeSandbox(m.Data)
	if err != nil {
		return err
	}
	s, known := v.sandboxes[id]
	if !known && !begins(events) {
		return nil // it has ended and is being removed: see sweepSandboxes
	}
	s.ID, s.Tenant, s.Rev = id, tenant, m.Seq
	now := time.Now()
	for i, e := range events {
		t, is := webhook.TypeOf(&s, e.Body)
		next, err := s.Apply(e)
		if err != nil {
			v.conn.Log().Warn("apply event failed", "sandbox", id, "seq", e.Seq, "err", err)
			next.Seq = e.Seq
		} else if is {
			v.lifecycle.add(tenant, webhook.At(m.Seq, i), t, m.Time, now)
		}
		s = next
	}
	v.sandboxes[id] = s
	return nil
}

// begins reports whether events are the beginning of a record.
func begins(events []sandbox.Event) bool {
	if len(events) == 0 {
		return false
	}
	_, ok := events[0].Body.(sandbox.Requested)
	return ok
}

// Sandbox returns a sandbox's state.
func (v *View) Sandbox(id sandbox.ID) (sandbox.State, bool) {
	v.progress.Lock()
	defer v.progress.Unlock()
	s, ok := v.sandboxes[id]
	return s, ok
}

// Sandboxes returns the sandboxes for which keep is true, newest first. keep must not retain its
// argument.
func (v *View) Sandboxes(keep func(*sandbox.State) bool) []sandbox.State {
	v.progress.Lock()
	var out []sandbox.State
	var s sandbox.State // one for all: keep makes it escape
	for _, s = range v.sandboxes {
		if keep(&s) {
			out = append(out, s)
		}
	}
	v.progress.Unlock()
	slices.SortFunc(out, func(a, b sandbox.State) int {
		if c := b.Created.Compare(a.Created); c != 0 {
			return c
		}
		return strings.Compare(string(a.ID), string(b.ID))
	})
	return out
}

// CreateSandbox stores a new sandbox's request and returns its state.
func (v *View) CreateSandbox(ctx context.Context, tenant string, id sandbox.ID, req sandbox.Requested) (sandbox.State, error) {
	rev, err := v.write.AppendSandbox(ctx, tenant, id, 0, 1, req)
	if err != nil {
		return sandbox.State{}, err
	}
	return v.AwaitSandbox(ctx, id, func(s *sandbox.State) bool { return s.Rev >= rev })
}

// ChangeSandbox appends the events that decide derives from the sandbox's latest state, and
// calls decide again if another writer was first. If decide returns no events, nothing is
// appended. ChangeSandbox returns the state after that, which the view then has, or
// NotFound if the sandbox does not exist.
func (v *View) ChangeSandbox(ctx context.Context, id sandbox.ID, decide func(sandbox.State) ([]sandbox.Body, error)) (sandbox.State, error) {
	for {
		s, ok := v.Sandbox(id)
		if !ok {
			return s, kind.New(kind.NotFound, "change sandbox", string(id), "sandbox not found")
		}
		bodies, err := decide(s)
		if err != nil || len(bodies) == 0 {
			return s, err
		}
		rev, err := v.write.AppendSandbox(ctx, s.Tenant, id, s.Rev, s.Seq+1, bodies...)
		if err == nil {
			return v.AwaitSandbox(ctx, id, func(s *sandbox.State) bool { return s.Rev >= rev })
		}
		if !kind.Is(err, kind.Conflict) {
			return s, err
		}
		if err := v.progress.Sync(ctx, streams.Sandboxes); err != nil {
			return s, err
		}
	}
}

// AwaitSandbox waits until done accepts the sandbox's state or ctx ends, and returns the
// state at that moment.
func (v *View) AwaitSandbox(ctx context.Context, id sandbox.ID, done func(*sandbox.State) bool) (sandbox.State, error) {
	var s sandbox.State
	err := v.progress.Wait(ctx, func() bool {
		s = v.sandboxes[id]
		return done(&s)
	})
	return s, err
}
