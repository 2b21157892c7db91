package core

import (
	"context"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
)

// together is how long a pause is answered after it is done: requests that clients send at
// the same time arrive one after the other, and a pause takes a few milliseconds.
const together = 100 * time.Millisecond

// joinPause counts a pause of a sandbox until done, and reports whether there was one.
func (c *Core) joinPause(id sandbox.ID) (joined bool, done func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pausing[id]++
	return c.pausing[id] > 1, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.pausing[id]--; c.pausing[id] == 0 {
			delete(c.pausing, id)
		}
	}
}

// PauseSandbox pauses a sandbox and returns when it is paused. With files only its files
// are kept, and its processes end when it resumes. Pauses of the same kind that overlap
// are one: a request that arrives before the first is answered has its answer. Errors:
// Conflict if it is paused already, Unimplemented if its host cannot pause, NotFound unless
// it runs.
func (c *Core) PauseSandbox(ctx context.Context, p Principal, id sandbox.ID, files bool) error {
	st, err := c.find(ctx, p, id)
	if err != nil {
		return err
	}
	joined, done := c.joinPause(id)
	defer done()
	ran := joined || st.Live()
	if st.Live() {
		if err := c.alive(&st); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.CreateTimeout)
	defer cancel()
	st, err = c.view.ChangeSandbox(ctx, id, func(s sandbox.State) ([]sandbox.Body, error) {
		same := s.Reboot == files
		switch {
		case same && s.Phase == sandbox.PhasePausing, same && ran && s.Phase == sandbox.PhasePaused:
			return nil, nil
		case s.Standing():
			return nil, kind.Newf(kind.Conflict, "pause", string(id), "sandbox %s is already paused", id)
		case !s.Live():
			return nil, noSandbox(id)
		case !s.Can.Pause:
			return nil, kind.Newf(kind.Unimplemented, "pause", string(id), "driver %s cannot pause a sandbox here", s.Driver)
		}
		return []sandbox.Body{sandbox.Pausing{Cause: sandbox.CauseUser, Files: files}}, nil
	})
	if err != nil {
		return logError("pause", string(id), err)
	}
	st, err = c.view.AwaitSandbox(ctx, id, func(s *sandbox.State) bool { return s.Phase != sandbox.PhasePausing })
	switch {
	case err != nil:
		return &kind.Error{Op: "pause", ID: string(id), Kind: kind.Unavailable, Msg: "the sandbox is being paused", Err: err}
	case st.Live() && st.Message != "":
		return kind.New(kind.Unavailable, "pause", string(id), "the sandbox could not be paused: "+st.Message)
	case st.Live() || st.Standing(): // it was paused, whatever happened then
		if !joined {
			settle(ctx, together)
		}
		return nil
	}
	return noSandbox(id)
}

// settle waits for a time, or until ctx ends.
func settle(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// ResumeOptions say how a sandbox goes on.
type ResumeOptions struct {
	Lifetime  time.Duration // counted from when it runs again
	OnTimeout string        // what happens there; empty: as before
	Reboot    bool          // its processes end first
	Extend    bool          // one that ran already gets Lifetime from now, if that ends later
	Traffic   bool          // somebody needs it: the other fields mean nothing
}

// ResumeSandbox has a paused sandbox go on and returns when it does. resumed is
// false if it ran already: then nothing was changed but what Extend does. Unavailable
// if its host does not do it in time or cannot; NotFound once it is over.
func (c *Core) ResumeSandbox(ctx context.Context, p Principal, id sandbox.ID, opt ResumeOptions) (st sandbox.State, resumed bool, err error) {
	if st, err = c.find(ctx, p, id); err != nil {
		return st, false, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.CreateTimeout)
	defer cancel()
	for tried, asked := false, false; ; {
		st, err = c.view.ChangeSandbox(ctx, id, func(s sandbox.State) ([]sandbox.Body, error) {
			if tried && s.Phase == sandbox.PhasePaused && s.Message != "" {
				return nil, kind.New(kind.Unavailable, "resume", string(id), "the sandbox could not be resumed: "+s.Message)
			}
			bodies, err := resume(&s, &opt, asked)
			asked = asked && s.Live() || s.Phase == sandbox.PhasePaused
			tried = tried || s.Phase == sandbox.PhasePaused || s.Phase == sandbox.PhaseResuming
			return bodies, err
		})
		if err != nil {
			return st, false, logError("resume", string(id), err)
		}
		if st.Live() {
			return st, tried, nil
		}
		if err := c.alive(&st); err != nil {
			return st, false, err
		}
		if st.Phase == sandbox.PhasePaused { // it went on, and was paused again before anybody looked
			continue
		}
		was := st.Phase
		if _, err = c.view.AwaitSandbox(ctx, id, func(s *sandbox.State) bool { return s.Phase != was }); err != nil {
			return st, false, &kind.Error{Op: "resume", ID: string(id), Kind: kind.Unavailable, Msg: "the sandbox does not go on in time, try again", Err: err}
		}
	}
}

// resume decides how a sandbox goes on. One that is on its way to a pause must
// have come there first. asked says that its lifetime is that of opt already.
func resume(s *sandbox.State, opt *ResumeOptions, asked bool) ([]sandbox.Body, error) {
	switch s.Phase {
	case sandbox.PhaseRunning:
		if end := time.Now().Add(opt.Lifetime); opt.Extend && !asked && end.After(s.Deadline) {
			return []sandbox.Body{sandbox.DeadlineSet{Deadline: end}}, nil
		}
		return nil, nil
	case sandbox.PhasePausing, sandbox.PhaseResuming:
		return nil, nil
	case sandbox.PhasePaused:
		if opt.Traffic {
			return s.Woken(), nil
		}
		return []sandbox.Body{
			sandbox.Resuming{Cause: sandbox.CauseUser, OnTimeout: opt.OnTimeout, Reboot: opt.Reboot, Lifetime: opt.Lifetime},
		}, nil
	case sandbox.PhaseRequested, sandbox.PhaseQueued, sandbox.PhasePlaced, sandbox.PhaseStopping:
		return nil, kind.New(kind.Conflict, "resume", string(s.ID), "the sandbox does not run")
	}
	return nil, noSandbox(s.ID)
}

// wake resumes a sandbox because somebody needs it.
func (c *Core) wake(ctx context.Context, p Principal, s *sandbox.State) (sandbox.State, error) {
	st, _, err := c.ResumeSandbox(ctx, p, s.ID, ResumeOptions{Traffic: true})
	return st, err
}

// WakeBy is Wake for a request to the data plane, which must show the sandbox's token to
// resume it; Denied without.
func (c *Core) WakeBy(ctx context.Context, id sandbox.ID, token string) (bool, error) {
	ok, err := c.Alive(ctx, id)
	if ok || err != nil {
		return ok, err
	}
	st, found := c.view.Sandbox(id)
	if !found || !st.Standing() || !st.Wakes() {
		return false, nil
	}
	p, err := c.Bearer(ctx, id, token)
	if err == nil {
		_, err = c.wake(ctx, p, &st)
	}
	switch {
	case kind.Is(err, kind.NotFound):
		return false, nil
	case kind.Is(err, kind.Unauthenticated):
		return false, kind.New(kind.Denied, "resume", string(id), "the sandbox is paused: resuming it requires its access token")
	}
	return err == nil, err
}

// Wake is Alive for traffic from whoever may not be known: a sandbox that is
// paused is resumed for it if its creator wanted that.
func (c *Core) Wake(ctx context.Context, id sandbox.ID) (bool, error) {
	ok, err := c.Alive(ctx, id)
	if ok || err != nil {
		return ok, err
	}
	st, found := c.view.Sandbox(id)
	if !found || !st.Standing() || !st.Wakes() {
		return false, nil
	}
	_, err = c.wake(ctx, Principal{Tenant: st.Tenant}, &st)
	return err == nil, err
}
