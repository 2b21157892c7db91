package core

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/template"
)

// CreateSandbox creates a sandbox and returns when it runs. It returns Exhausted if no
// host has free capacity, and Unavailable if there is no host, the host could not create
// it, or it took too long; after an error the sandbox is ended.
func (c *Core) CreateSandbox(ctx context.Context, p Principal, req sandbox.Requested) (sandbox.State, error) {
	if err := p.MayCreate(); err != nil {
		return sandbox.State{}, err
	}
	id := sandbox.NewID()
	st, err := c.createSandbox(ctx, p, id, req)
	switch {
	case err != nil:
		c.abandon(ctx, id)
	case req.Start != "":
		c.runTemplateCommand(ctx, p, &st)
	}
	return st, err
}

// createSandbox is CreateSandbox with an id, whose sandbox may exist already. It returns once
// the sandbox has run, whatever its state is by then. A sandbox that does not run in time is
// left as it is.
func (c *Core) createSandbox(ctx context.Context, p Principal, id sandbox.ID, req sandbox.Requested) (sandbox.State, error) {
	req.PlaceBy = time.Now().Add(c.QueueTimeout)
	req.RunBy = req.PlaceBy.Add(c.CreateTimeout)
	within, cancel := context.WithDeadline(ctx, req.RunBy)
	defer cancel()
	if _, err := c.View.CreateSandbox(within, p.Tenant, id, req); kind.Is(err, kind.Conflict) {
		if err := c.Sync(within); err != nil { // it exists already
			return sandbox.State{}, err
		}
	} else if err != nil {
		return sandbox.State{}, LogError("create sandbox", string(id), err)
	}
	st, err := c.View.AwaitSandbox(within, id, func(s *sandbox.State) bool {
		return !s.Started.IsZero() || s.Over() || s.Phase == sandbox.PhaseStopping
	})
	if err != nil {
		return st, &kind.Error{Op: "create sandbox", ID: string(id), Kind: kind.Unavailable,
			Msg: "the sandbox did not start in time, try again", Err: err}
	}
	if st.Started.IsZero() {
		return st, notCreated(&st)
	}
	return st, nil
}

// abandon ends a sandbox that no client will receive, also when the caller's context has
// ended.
func (c *Core) abandon(ctx context.Context, id sandbox.ID) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.CallTimeout)
	defer cancel()
	if _, err := c.View.ChangeSandbox(ctx, id, stop); err != nil && !kind.Is(err, kind.NotFound) {
		// Otherwise its deadline ends it.
		c.Slog.Warn("abandon sandbox failed", "sandbox", id, "err", err)
	}
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

// Sandbox returns a sandbox's state as of the view. It returns NotFound also for another
// tenant's. Ended sandboxes are found as long as the log keeps them.
func (c *Core) Sandbox(p Principal, id sandbox.ID) (sandbox.State, error) {
	if st, ok := c.View.Sandbox(id); ok && p.MayAccess(&st) {
		return st, nil
	}
	return sandbox.State{}, NoSandbox(id)
}

// Lookup is Sandbox, but its result is not older than the call.
func (c *Core) Lookup(ctx context.Context, p Principal, id sandbox.ID) (sandbox.State, error) {
	if err := c.Sync(ctx); err != nil {
		return sandbox.State{}, err
	}
	return c.Sandbox(p, id)
}

// find is Sandbox, but a miss is final only after the view has caught up, and so is a sandbox
// that does not run yet: another gateway may have reported to its client that it does. Any
// other hit may be as old as the view's lag.
func (c *Core) find(ctx context.Context, p Principal, id sandbox.ID) (sandbox.State, error) {
	if st, err := c.Sandbox(p, id); err == nil && !willRun(&st) {
		return st, nil
	}
	return c.Lookup(ctx, p, id)
}

// willRun reports whether the sandbox is about to run for the first time or is paused.
func willRun(st *sandbox.State) bool {
	return st.Begins() || st.InPause()
}

// running is find for operations that need a running sandbox: it resumes a paused one if it
// was created with autoResume, and returns Conflict otherwise.
func (c *Core) running(ctx context.Context, p Principal, id sandbox.ID) (sandbox.State, error) {
	st, err := c.find(ctx, p, id)
	switch {
	case err != nil || st.IsRunning():
		return st, err
	case st.InPause() && st.AutoResumes():
		return c.wake(ctx, p, &st)
	case st.InPause():
		return st, kind.New(kind.Conflict, "use sandbox", string(id), "the sandbox is paused")
	}
	return sandbox.State{}, NoSandbox(id)
}

// Running reports whether the principal's sandbox runs; it resumes a paused one that was
// created with autoResume. A miss is final only after the view has caught up.
func (c *Core) Running(ctx context.Context, p Principal, id sandbox.ID) (bool, error) {
	_, err := c.running(ctx, p, id)
	if kind.Is(err, kind.NotFound) || kind.Is(err, kind.Conflict) {
		return false, nil
	}
	return err == nil, err
}

// Alive is Running without a principal: it discloses only that a sandbox with this id,
// which cannot be guessed, runs.
func (c *Core) Alive(ctx context.Context, id sandbox.ID) (bool, error) {
	st, ok := c.View.Sandbox(id)
	if !ok || willRun(&st) {
		if err := c.Sync(ctx); err != nil {
			return false, err
		}
		st, ok = c.View.Sandbox(id)
	}
	return ok && st.IsRunning(), nil
}

// SandboxEnv returns the environment that the host gives to every process of a sandbox: the
// template's, the sandbox's own, and the variables that identify it. It returns NotFound also
// for another tenant's.
func (c *Core) SandboxEnv(ctx context.Context, p Principal, id sandbox.ID) (map[string]string, error) {
	st, err := c.find(ctx, p, id)
	if err != nil {
		return nil, err
	}
	env := make(map[string]string)
	if tid, err := template.ParseID(st.Request.Template); err == nil {
		if t, ok := c.View.TemplateByID(tid); ok {
			maps.Copy(env, t.Manifest.Env)
		}
	}
	maps.Copy(env, st.Request.Env)
	maps.Copy(env, sandbox.IdentityEnv(id, &st.Request))
	return env, nil
}

// Sandboxes returns the principal's sandboxes for which keep returns true, newest first, as
// of the view.
func (c *Core) Sandboxes(p Principal, keep func(*sandbox.State) bool) []sandbox.State {
	return c.View.Sandboxes(func(s *sandbox.State) bool { return p.MayAccess(s) && keep(s) })
}

// Phases counts the sandboxes of all tenants in the log, by phase.
func (c *Core) Phases() map[sandbox.Phase]int {
	out := make(map[sandbox.Phase]int)
	c.View.Sandboxes(func(s *sandbox.State) bool {
		out[s.Phase]++
		return false
	})
	return out
}

// SetDeadline moves the sandbox's deadline; with extendOnly never to an earlier time. It
// returns NotFound once the sandbox is over, Conflict while it is being ended or is paused.
func (c *Core) SetDeadline(ctx context.Context, p Principal, id sandbox.ID, deadline time.Time, extendOnly bool) (sandbox.State, error) {
	if _, err := c.find(ctx, p, id); err != nil {
		return sandbox.State{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.CallTimeout)
	defer cancel()
	st, err := c.View.ChangeSandbox(ctx, id, func(s sandbox.State) ([]sandbox.Body, error) {
		switch {
		case s.Over():
			return nil, NoSandbox(id)
		case s.Phase == sandbox.PhaseStopping:
			return nil, kind.New(kind.Conflict, "set deadline", string(id), "the sandbox is being ended")
		case s.Phase == sandbox.PhasePausing || s.Phase == sandbox.PhasePaused:
			return nil, kind.New(kind.Conflict, "set deadline", string(id), "the sandbox is paused")
		case deadline.Equal(s.Deadline) || extendOnly && deadline.Before(s.Deadline):
			return nil, nil
		}
		return []sandbox.Body{sandbox.DeadlineSet{Deadline: deadline}}, nil
	})
	return st, LogError("set deadline", string(id), err)
}

// DestroySandbox ends a sandbox with everything in it and returns when it is over. It returns
// NotFound if it is over already, and Unavailable if the stop is stored but did not complete
// in time.
func (c *Core) DestroySandbox(ctx context.Context, p Principal, id sandbox.ID) error {
	st, err := c.find(ctx, p, id)
	if err != nil {
		return err
	}
	if st.Over() {
		return NoSandbox(id)
	}
	ctx, cancel := context.WithTimeout(ctx, c.DestroyTimeout)
	defer cancel()
	st, err = c.View.ChangeSandbox(ctx, id, stop)
	if err != nil || st.Over() {
		return LogError("destroy sandbox", string(id), err)
	}
	if _, err := c.View.AwaitSandbox(ctx, id, (*sandbox.State).Over); err != nil {
		return &kind.Error{Op: "destroy sandbox", ID: string(id), Kind: kind.Unavailable,
			Msg: "the sandbox is being ended", Err: err}
	}
	return nil
}

// stop returns the event that ends a sandbox on request.
func stop(s sandbox.State) ([]sandbox.Body, error) {
	if s.Over() || s.Phase == sandbox.PhaseStopping {
		return nil, nil
	}
	return []sandbox.Body{sandbox.Stopping{Cause: sandbox.CauseUser}}, nil
}
