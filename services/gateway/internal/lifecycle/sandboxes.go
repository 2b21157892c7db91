package lifecycle

import (
	"context"
	"maps"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/template"
	"github.com/millrace/millrace/services/gateway/internal/core"
)

// Abandon ends a sandbox that no client will receive, also when the caller's context has
// ended.
func (l *Lifecycle) Abandon(ctx context.Context, id sandbox.ID) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.core.CallTimeout)
	defer cancel()
	if _, err := l.core.View.ChangeSandbox(ctx, id, stop(sandbox.CauseUser)); err != nil && !kind.Is(err, kind.NotFound) {
		// Otherwise its deadline ends it.
		l.core.Slog.Warn("abandon sandbox failed", "sandbox", id, "err", err)
	}
}

// Sandbox returns a sandbox's state as of the view. It returns NotFound also for another
// tenant's. Ended sandboxes are found as long as the log keeps them.
func (l *Lifecycle) Sandbox(p core.Principal, id sandbox.ID) (sandbox.State, error) {
	switch st, ok := l.core.View.Sandbox(id); {
	case !ok || st.Tenant == p.Tenant && !p.MayAccess(&st):
		return sandbox.State{}, core.NoSandbox(id)
	case st.Tenant != p.Tenant:
		return sandbox.State{}, core.ForeignSandbox(id, st.Tenant)
	default:
		return st, nil
	}
}

// Lookup is Sandbox, but its result is not older than the call.
func (l *Lifecycle) Lookup(ctx context.Context, p core.Principal, id sandbox.ID) (sandbox.State, error) {
	if err := l.core.Sync(ctx); err != nil {
		return sandbox.State{}, err
	}
	return l.Sandbox(p, id)
}

// FindSandbox is Sandbox, but a miss is final only after the view has caught up, and so is a
// sandbox that does not run yet: another gateway may have reported to its client that it does.
// Any other hit may be as old as the view's lag.
func (l *Lifecycle) FindSandbox(ctx context.Context, p core.Principal, id sandbox.ID) (sandbox.State, error) {
	if st, err := l.Sandbox(p, id); err == nil && !willRun(&st) {
		return st, nil
	}
	return l.Lookup(ctx, p, id)
}

// willRun reports whether the sandbox is about to run for the first time or is paused.
func willRun(st *sandbox.State) bool {
	return st.Begins() || st.InPause()
}

// RequireRunning is FindSandbox for operations that need a running sandbox: it resumes a paused
// one if it was created with autoResume, and returns Conflict otherwise.
func (l *Lifecycle) RequireRunning(ctx context.Context, p core.Principal, id sandbox.ID) (sandbox.State, error) {
	st, err := l.FindSandbox(ctx, p, id)
	switch {
	case err != nil || st.IsRunning():
		return st, err
	case st.InPause() && st.AutoResumes():
		return l.wake(ctx, p, &st)
	case st.InPause():
		return st, kind.New(kind.Conflict, "use sandbox", string(id), "the sandbox is paused")
	}
	return sandbox.State{}, core.NoSandbox(id)
}

// Running reports whether the principal's sandbox runs; it resumes a paused one that was
// created with autoResume. A miss is final only after the view has caught up.
func (l *Lifecycle) Running(ctx context.Context, p core.Principal, id sandbox.ID) (bool, error) {
	_, err := l.RequireRunning(ctx, p, id)
	if kind.Is(err, kind.NotFound) || kind.Is(err, kind.Conflict) {
		return false, nil
	}
	return err == nil, err
}

// Alive is Running without a principal: it discloses only that a sandbox with this id,
// which cannot be guessed, runs.
func (l *Lifecycle) Alive(ctx context.Context, id sandbox.ID) (bool, error) {
	st, ok := l.core.View.Sandbox(id)
	if !ok || willRun(&st) {
		if err := l.core.Sync(ctx); err != nil {
			return false, err
		}
		st, ok = l.core.View.Sandbox(id)
	}
	return ok && st.IsRunning(), nil
}

// SandboxEnv returns the environment that the host gives to every process of a sandbox: the
// template's, the sandbox's own, and the variables that identify it. It returns NotFound also
// for another tenant's.
func (l *Lifecycle) SandboxEnv(ctx context.Context, p core.Principal, id sandbox.ID) (map[string]string, error) {
	st, err := l.FindSandbox(ctx, p, id)
	if err != nil {
		return nil, err
	}
	env := make(map[string]string)
	if tid, err := template.ParseID(st.Request.Template); err == nil {
		if t, ok := l.core.View.TemplateByID(tid); ok {
			maps.Copy(env, t.Manifest.Env)
		}
	}
	own, err := l.OwnEnv(&st)
	if err != nil {
		return nil, err
	}
	maps.Copy(env, own)
	maps.Copy(env, sandbox.IdentityEnv(id, &st.Request))
	return env, nil
}

// OwnEnv returns the environment with which a sandbox was created.
func (l *Lifecycle) OwnEnv(st *sandbox.State) (map[string]string, error) {
	return st.Request.OpenEnv(l.core.Sealer, st.Tenant, string(st.ID))
}

// Sandboxes returns the principal's sandboxes for which keep returns true, newest first, as
// of the view.
func (l *Lifecycle) Sandboxes(p core.Principal, keep func(*sandbox.State) bool) []sandbox.State {
	return l.core.View.Sandboxes(func(s *sandbox.State) bool { return p.MayAccess(s) && keep(s) })
}

// Phases counts the sandboxes of all tenants in the log, by phase.
func (l *Lifecycle) Phases() map[sandbox.Phase]int {
	out := make(map[sandbox.Phase]int)
	l.core.View.Sandboxes(func(s *sandbox.State) bool {
		out[s.Phase]++
		return false
	})
	return out
}

// SetDeadline moves the sandbox's deadline, at most to its hard end; with extendOnly never to an earlier time. It
// returns NotFound once the sandbox is over, Conflict while it is being ended or is paused.
func (l *Lifecycle) SetDeadline(ctx context.Context, p core.Principal, id sandbox.ID, deadline time.Time, extendOnly bool) (sandbox.State, error) {
	if _, err := l.FindSandbox(ctx, p, id); err != nil {
		return sandbox.State{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, l.core.CallTimeout)
	defer cancel()
	st, err := l.core.View.ChangeSandbox(ctx, id, func(s sandbox.State) ([]sandbox.Body, error) {
		at := s.Clamp(deadline)
		switch {
		case s.Over():
			return nil, core.NoSandbox(id)
		case s.Phase == sandbox.PhaseStopping:
			return nil, kind.New(kind.Conflict, "set deadline", string(id), "the sandbox is being ended")
		case s.Phase == sandbox.PhasePausing || s.Phase == sandbox.PhasePaused:
			return nil, kind.New(kind.Conflict, "set deadline", string(id), "the sandbox is paused")
		case at.Equal(s.Deadline) || extendOnly && at.Before(s.Deadline):
			return nil, nil
		}
		return []sandbox.Body{sandbox.DeadlineSet{Deadline: at}}, nil
	})
	return st, core.LogError("set deadline", string(id), err)
}

// DestroySandbox ends a sandbox with everything in it and returns when it is over. It returns
// NotFound if it is over already, and Unavailable if the stop is stored but did not complete
// in time.
func (l *Lifecycle) DestroySandbox(ctx context.Context, p core.Principal, id sandbox.ID) error {
	return l.EndSandbox(ctx, p, id, sandbox.CauseUser)
}

// EndSandbox is DestroySandbox for another cause than a client's request.
func (l *Lifecycle) EndSandbox(ctx context.Context, p core.Principal, id sandbox.ID, cause string) error {
	st, err := l.FindSandbox(ctx, p, id)
	if err != nil {
		return err
	}
	if st.Over() {
		return core.NoSandbox(id)
	}
	ctx, cancel := context.WithTimeout(ctx, l.core.DestroyTimeout)
	defer cancel()
	st, err = l.core.View.ChangeSandbox(ctx, id, stop(cause))
	if err != nil || st.Over() {
		return core.LogError("destroy sandbox", string(id), err)
	}
	if _, err := l.core.View.AwaitSandbox(ctx, id, (*sandbox.State).Over); err != nil {
		return &kind.Error{Op: "destroy sandbox", ID: string(id), Kind: kind.Unavailable,
			Msg: "the sandbox is being ended", Err: err}
	}
	return nil
}

// stop returns the function that decides the end of a sandbox.
func stop(cause string) func(sandbox.State) ([]sandbox.Body, error) {
	return func(s sandbox.State) ([]sandbox.Body, error) {
		if s.Over() || s.Phase == sandbox.PhaseStopping {
			return nil, nil
		}
		return []sandbox.Body{sandbox.Stopping{Cause: cause}}, nil
	}
}

// EndSandboxes ends those of a principal's sandboxes for which which returns true,
// without waiting for their end.
func (l *Lifecycle) EndSandboxes(ctx context.Context, p core.Principal, which func(*sandbox.State) bool) {
	for _, s := range l.Sandboxes(p, func(s *sandbox.State) bool { return !s.Over() && which(s) }) {
		if _, err := l.core.View.ChangeSandbox(ctx, s.ID, stop(sandbox.CauseUser)); err != nil {
			l.core.Slog.Warn("end sandbox failed", "sandbox", s.ID, "err", err) // its deadline ends it
		}
	}
}
