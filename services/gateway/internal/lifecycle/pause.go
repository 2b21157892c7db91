package lifecycle

import (
	"context"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/latency"
)

// pauseAnswerDelay is the delay between a pause and its answer: requests that clients send at the
// same time arrive one after the other, and a pause takes only a few milliseconds.
const pauseAnswerDelay = 100 * time.Millisecond

// joinPause counts a pause of a sandbox until done, and reports whether another was under way.
func (l *Lifecycle) joinPause(id sandbox.ID) (joined bool, done func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pausing[id]++
	return l.pausing[id] > 1, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.pausing[id]--; l.pausing[id] == 0 {
			delete(l.pausing, id)
		}
	}
}

// PauseSandbox pauses a sandbox and returns when it is paused. With files it keeps only the
// files, and the processes end on resume. Overlapping pauses of the same kind are one: a
// request that arrives before the first is answered gets its answer. It returns Conflict if
// the sandbox is paused already, Unimplemented if its host cannot pause it, and NotFound
// unless it runs.
func (l *Lifecycle) PauseSandbox(ctx context.Context, p core.Principal, id sandbox.ID, files bool) error {
	st, err := l.FindSandbox(ctx, p, id)
	if err != nil {
		return err
	}
	joined, done := l.joinPause(id)
	defer done()
	ran := joined || st.IsRunning()
	if st.IsRunning() {
		if err := l.core.RequireHost(&st); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, l.core.CreateTimeout)
	defer cancel()
	st, err = l.core.View.ChangeSandbox(ctx, id, func(s sandbox.State) ([]sandbox.Body, error) {
		same := s.Reboot == files
		switch {
		case same && s.Phase == sandbox.PhasePausing, same && ran && s.Phase == sandbox.PhasePaused:
			return nil, nil
		case s.InPause():
			return nil, kind.Newf(kind.Conflict, "pause", string(id), "sandbox %s is already paused", id)
		case !s.IsRunning():
			return nil, core.NoSandbox(id)
		case !s.Can.Pause:
			return nil, kind.Newf(kind.Unimplemented, "pause", string(id), "driver %s cannot pause a sandbox here", s.Driver)
		}
		return []sandbox.Body{sandbox.Pausing{Cause: sandbox.CauseUser, Files: files}}, nil
	})
	if err != nil {
		return core.LogError("pause", string(id), err)
	}
	st, err = l.core.View.AwaitSandbox(ctx, id, func(s *sandbox.State) bool { return s.Phase != sandbox.PhasePausing })
	switch {
	case err != nil:
		return &kind.Error{Op: "pause", ID: string(id), Kind: kind.Unavailable, Msg: "the sandbox is being paused", Err: err}
	case st.IsRunning() && st.Message != "":
		return kind.New(kind.Unavailable, "pause", string(id), "the sandbox could not be paused: "+st.Message)
	case st.IsRunning() || st.InPause(): // it was paused, even if it has been resumed since
		if !joined {
			waiting.Sleep(ctx, pauseAnswerDelay)
		}
		return nil
	}
	return core.NoSandbox(id)
}

// ResumeOptions configure a resume.
type ResumeOptions struct {
	Lifetime  time.Duration // counted from the moment it runs again
	OnTimeout string        // action at the end of Lifetime; empty: unchanged
	Reboot    bool          // end its processes first
	Extend    bool          // set the end of a running sandbox to Lifetime from now, if that is later
	Traffic   bool          // resumed by traffic: the other fields are ignored
}

// ResumeSandbox resumes a paused sandbox and returns when it runs. resumed is false if it
// ran already: then nothing changed, except by Extend. It returns Unavailable if the host
// cannot resume it or not in time, and NotFound once the sandbox is over.
func (l *Lifecycle) ResumeSandbox(ctx context.Context, p core.Principal, id sandbox.ID, opt ResumeOptions) (st sandbox.State, resumed bool, err error) {
	begin := time.Now()
	if st, err = l.FindSandbox(ctx, p, id); err != nil {
		return st, false, err
	}
	ctx, cancel := context.WithTimeout(ctx, l.core.CreateTimeout)
	defer cancel()
	for tried, asked := false, false; ; {
		st, err = l.core.View.ChangeSandbox(ctx, id, func(s sandbox.State) ([]sandbox.Body, error) {
			if tried && s.Phase == sandbox.PhasePaused && s.Message != "" {
				return nil, kind.New(kind.Unavailable, "resume", string(id), "the sandbox could not be resumed: "+s.Message)
			}
			bodies, err := resume(&s, &opt, asked)
			asked = asked && s.IsRunning() || s.Phase == sandbox.PhasePaused
			tried = tried || s.Phase == sandbox.PhasePaused || s.Phase == sandbox.PhaseResuming
			return bodies, err
		})
		if err != nil {
			return st, false, core.LogError("resume", string(id), err)
		}
		if st.IsRunning() {
			if tried {
				latency.Since(l.core.Latencies.Resume, begin)
			}
			return st, tried, nil
		}
		if err := l.core.RequireHost(&st); err != nil {
			return st, false, err
		}
		if st.Phase == sandbox.PhasePaused { // it was resumed and paused again meanwhile
			continue
		}
		was := st.Phase
		if _, err = l.core.View.AwaitSandbox(ctx, id, func(s *sandbox.State) bool { return s.Phase != was }); err != nil {
			return st, false, &kind.Error{Op: "resume", ID: string(id), Kind: kind.Unavailable, Msg: "the sandbox did not resume in time, try again", Err: err}
		}
	}
}

// resume returns the events that resume a sandbox. One that is being paused must be paused
// first. asked reports that its lifetime is already that of opt.
func resume(s *sandbox.State, opt *ResumeOptions, asked bool) ([]sandbox.Body, error) {
	switch s.Phase {
	case sandbox.PhaseRunning:
		if end := s.Clamp(time.Now().Add(opt.Lifetime)); opt.Extend && !asked && end.After(s.Deadline) {
			return []sandbox.Body{sandbox.DeadlineSet{Deadline: end}}, nil
		}
		return nil, nil
	case sandbox.PhasePausing, sandbox.PhaseResuming:
		return nil, nil
	case sandbox.PhasePaused:
		if opt.Traffic {
			return s.ResumeEvents(), nil
		}
		return []sandbox.Body{
			sandbox.Resuming{Cause: sandbox.CauseUser, OnTimeout: opt.OnTimeout, Reboot: opt.Reboot, Lifetime: opt.Lifetime},
		}, nil
	case sandbox.PhaseRequested, sandbox.PhaseQueued, sandbox.PhasePlaced, sandbox.PhaseStopping:
		return nil, kind.New(kind.Conflict, "resume", string(s.ID), "the sandbox does not run")
	}
	return nil, core.NoSandbox(s.ID)
}

// wake resumes a sandbox because of traffic.
func (l *Lifecycle) wake(ctx context.Context, p core.Principal, s *sandbox.State) (sandbox.State, error) {
	st, _, err := l.ResumeSandbox(ctx, p, s.ID, ResumeOptions{Traffic: true})
	return st, err
}

// WakeWithToken is Wake for a request to the data plane, which must carry the sandbox's token to
// resume it; Denied without it.
func (l *Lifecycle) WakeWithToken(ctx context.Context, id sandbox.ID, token string) (bool, error) {
	ok, err := l.Alive(ctx, id)
	if ok || err != nil {
		return ok, err
	}
	st, found := l.core.View.Sandbox(id)
	if !found || !st.InPause() || !st.AutoResumes() {
		return false, nil
	}
	p, err := l.Bearer(ctx, id, token)
	if err == nil {
		_, err = l.wake(ctx, p, &st)
	}
	switch {
	case kind.Is(err, kind.NotFound):
		return false, nil
	case kind.Is(err, kind.Unauthenticated):
		return false, kind.New(kind.Denied, "resume", string(id), "the sandbox is paused: resuming it requires its access token")
	}
	return err == nil, err
}

// Wake is Alive for unauthenticated traffic: it resumes a paused sandbox if it was created
// with autoResume.
func (l *Lifecycle) Wake(ctx context.Context, id sandbox.ID) (bool, error) {
	ok, err := l.Alive(ctx, id)
	if ok || err != nil {
		return ok, err
	}
	st, found := l.core.View.Sandbox(id)
	if !found || !st.InPause() || !st.AutoResumes() {
		return false, nil
	}
	_, err = l.wake(ctx, core.Principal{Tenant: st.Tenant}, &st)
	return err == nil, err
}
