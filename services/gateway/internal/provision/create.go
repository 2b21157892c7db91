package provision

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/latency"
)

// EnsureSandbox is CreateSandbox with an id that only the caller has; a sandbox that
// was created before is waited for. After an error it is left as it is: the caller's
// next run may wait for it.
func (pr *Provisioner) EnsureSandbox(ctx context.Context, p core.Principal, id sandbox.ID, req sandbox.Requested) (sandbox.State, error) {
	st, err := pr.createSandbox(ctx, p, id, req)
	if err == nil && !st.IsRunning() && !st.InPause() {
		err = notCreated(&st)
	}
	return st, err
}

// CreateSandbox creates a sandbox and returns when it runs. It returns Exhausted if no
// host has free capacity, and Unavailable if there is no host, the host could not create
// it, or it took too long; after an error the sandbox is ended.
func (pr *Provisioner) CreateSandbox(ctx context.Context, p core.Principal, req sandbox.Requested) (sandbox.State, error) {
	if err := p.MayCreate(); err != nil {
		return sandbox.State{}, err
	}
	id := sandbox.NewID()
	st, err := pr.createSandbox(ctx, p, id, req)
	switch {
	case err != nil:
		pr.lifecycle.Abandon(ctx, id)
	case req.Start != "":
		pr.procs.RunTemplateCommand(ctx, p, &st)
	}
	return st, err
}

// createSandbox is CreateSandbox with an id, whose sandbox may exist already. It returns once
// the sandbox has run, whatever its state is by then. The request may set another PlaceBy. A sandbox that does not run in time is
// left as it is.
func (pr *Provisioner) createSandbox(ctx context.Context, p core.Principal, id sandbox.ID, req sandbox.Requested) (sandbox.State, error) {
	begin, created := time.Now(), true
	if req.PlaceBy.IsZero() {
		req.PlaceBy = begin.Add(pr.core.QueueTimeout)
	}
	req.RunBy = req.PlaceBy.Add(pr.core.CreateTimeout)
	within, cancel := context.WithDeadline(ctx, req.RunBy)
	defer cancel()
	sealed, err := req.Defaults.Seal(pr.core.Sealer, p.Tenant, string(id))
	if err != nil {
		return sandbox.State{}, core.LogError("create sandbox", string(id), err)
	}
	req.Defaults = sealed
	if req.Recording, err = pr.recording(p.Tenant, id, req.Recording); err != nil {
		return sandbox.State{}, err
	}
	if _, err := pr.core.View.CreateSandbox(within, p.Tenant, id, req); kind.Is(err, kind.Conflict) {
		created = false
		if err := pr.core.Sync(within); err != nil { // it exists already
			return sandbox.State{}, err
		}
	} else if err != nil {
		return sandbox.State{}, core.LogError("create sandbox", string(id), err)
	}
	st, err := pr.core.View.AwaitSandbox(within, id, func(s *sandbox.State) bool {
		return !s.Started.IsZero() || s.Over() || s.Phase == sandbox.PhaseStopping
	})
	if err != nil {
		return st, &kind.Error{Op: "create sandbox", ID: string(id), Kind: kind.Unavailable,
			Msg: "the sandbox did not start in time, try again", Err: err}
	}
	if st.Started.IsZero() {
		return st, notCreated(&st)
	}
	if created {
		latency.Since(pr.core.Latencies.Create, begin)
	}
	return st, nil
}

// recording returns what is kept of the processes of a new sandbox, for its record: the installation's
// settings can only become stricter.
func (pr *Provisioner) recording(tenant string, id sandbox.ID, c sandbox.Recording) (sandbox.Recording, error) {
	least := &pr.core.Recording
	c.Record = max(c.Record, least.Record)
	for _, p := range least.Redact {
		if !slices.Contains(c.Redact, p) {
			c.Redact = append(slices.Clip(c.Redact), p)
		}
	}
	if err := c.Check(); err != nil {
		return c, err
	}
	sealed, err := c.Seal(pr.core.Sealer, tenant, string(id))
	return sealed, core.LogError("create sandbox", string(id), err)
}

// notCreated returns the reason why a sandbox ended before it ran.
func notCreated(st *sandbox.State) error {
	e := &kind.Error{Op: "create sandbox", ID: string(st.ID), Kind: kind.Unavailable, Err: errors.New(st.Cause)}
	switch st.Phase {
	case sandbox.PhaseRefused:
		e.Kind, e.Msg = st.Refusal, st.Cause
	case sandbox.PhaseLost:
		e.Msg = "the sandbox's host was lost, try again"
	case sandbox.PhaseFailed:
		e.Msg = "the sandbox's host could not create it:  " + st.Cause
	default:
		e.Kind, e.Msg = kind.Conflict, "the sandbox was ended before it ran"
		if st.Cause == sandbox.CauseLate {
			e.Kind, e.Msg = kind.Unavailable, "the sandbox did not start in time, try again"
		}
	}
	return e
}
