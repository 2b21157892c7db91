package sandboxes

import (
	"context"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/services/hostd/internal/session"
)

// A sandbox's record is its desired state: it requests a pause as it requests an end, and
// Reconcile brings the instance there. So it does not matter which client asked, nor which run of
// the host was active then.

// pausing pauses and resumes a sandbox as its record says. The sandbox's mutex guards its fields,
// except for paused.
type pausing struct {
	sb *hostSandbox

	poke    chan struct{} // has a value when the record may request a pause, a resume or the end
	paused  bool          // of serve's goroutine: the instance is paused, as far as hostd knows
	desired sandbox.Phase // the latest phase in the record
	seq     uint64        // its seq
	reboot  bool          // its processes end when it resumes
	state   pauseState
}

// pauseState is how far a sandbox is in a pause. Commands are forwarded unless the pause holds.
type pauseState int

const (
	pauseNone  pauseState = iota // the record has no pause
	pauseHolds                   // the record has the sandbox paused, or on its way there or back
	pauseOver                    // as pauseHolds, but the instance has resumed: the record will have that
)

// pauseEvent is what changes a pauseState.
type pauseEvent int

const (
	recordRuns      pauseEvent = iota // the record's phase has no pause
	recordPauses                      // the record requests a pause
	recordStays                       // the record has the sandbox paused, or requests the end of that
	instanceResumed                   // the instance runs, whatever phase the record has yet
)

var nextPauseState = map[pauseState]map[pauseEvent]pauseState{
	pauseNone:  {recordRuns: pauseNone, recordPauses: pauseHolds, recordStays: pauseHolds, instanceResumed: pauseNone},
	pauseHolds: {recordRuns: pauseNone, recordPauses: pauseHolds, recordStays: pauseHolds, instanceResumed: pauseOver},
	pauseOver:  {recordRuns: pauseNone, recordPauses: pauseHolds, recordStays: pauseOver, instanceResumed: pauseOver},
}

func (s pauseState) after(e pauseEvent) pauseState { return nextPauseState[s][e] }

// pauseEventOf returns the event of a record that changes to a phase.
func pauseEventOf(p sandbox.Phase) pauseEvent {
	s := sandbox.State{Phase: p}
	switch {
	case p == sandbox.PhasePausing:
		return recordPauses
	case s.InPause():
		return recordStays
	}
	return recordRuns
}

// suspended reports whether the record has the sandbox paused, or on its way there or back.
func (ps *pausing) suspended() bool {
	ps.sb.mu.Lock()
	defer ps.sb.mu.Unlock()
	return ps.state == pauseHolds
}

// usable reports whether a command may be forwarded: it is refused where it would wait for an
// unknown time. A client that did not see the pause yet resumes a sandbox whose creator asked for
// that.
func (ps *pausing) usable() error {
	switch {
	case !ps.suspended():
		return nil
	case ps.sb.req.AutoResume && !ps.reboots():
		ps.sb.cfg.Spawn("wake "+string(ps.sb.id), ps.wake)
		return nil
	}
	return kind.New(kind.Conflict, "command", string(ps.sb.id), "the sandbox is paused")
}

// wake requests the end of a pause in the record.
func (ps *pausing) wake(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, session.DialTimeout)
	defer cancel()
	_, err := ps.sb.cfg.View.AwaitSandbox(ctx, ps.sb.id, func(s *sandbox.State) bool { return s.Phase != sandbox.PhasePausing })
	if err != nil {
		return err
	}
	_, err = ps.sb.cfg.View.ChangeSandbox(ctx, ps.sb.id, func(s sandbox.State) ([]sandbox.Body, error) {
		if s.Phase != sandbox.PhasePaused {
			return nil, nil
		}
		return s.ResumeEvents(), nil
	})
	return err
}

// markResumed accepts commands from now on, whatever phase the record has yet: a client that
// reads there that the sandbox is resumed may be faster than the view.
func (ps *pausing) markResumed() {
	ps.sb.mu.Lock()
	defer ps.sb.mu.Unlock()
	ps.state = ps.state.after(instanceResumed)
}

func (ps *pausing) desiredPhase() sandbox.Phase {
	ps.sb.mu.Lock()
	defer ps.sb.mu.Unlock()
	return ps.desired
}

// AwaitResumed waits while the shim cannot be reached because the sandbox is paused.
func (ps *pausing) AwaitResumed(ctx context.Context) error {
	switch {
	case !ps.suspended():
		ps.ResumeInstance(ctx)
	case ps.desiredPhase() == sandbox.PhasePaused:
		// The previous run may have died while it let the instance run to save its files.
		if err := ps.sb.current.Instance().Pause(ctx); err != nil && ctx.Err() == nil && !kind.Is(err, kind.Unavailable) {
			ps.sb.cfg.Slog.Warn("pause sandbox again failed", "sandbox", ps.sb.id, "err", err)
		}
	}
	for {
		if err := ps.Reconcile(ctx); err != nil || !ps.paused {
			return err
		}
		select {
		case <-ps.poke:
		case <-ps.sb.stop:
			ps.ResumeInstance(ctx)
			return nil
		case <-ps.sb.current.Instance().Done():
			return session.ErrShimGone
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// ResumeInstance resumes an instance without a request in the record: one that cannot be resumed
// is destroyed as it is.
func (ps *pausing) ResumeInstance(ctx context.Context) {
	if !ps.paused {
		return
	}
	if err := ps.sb.current.Instance().Resume(ctx); err != nil && !kind.Is(err, kind.Unimplemented) && ctx.Err() == nil {
		ps.sb.cfg.Slog.Warn("resume sandbox failed", "sandbox", ps.sb.id, "err", err)
	}
	ps.paused = false
	ps.sb.session.SyncClock()
}

// Reconcile brings the instance to the desired state and records the outcome.
func (ps *pausing) Reconcile(ctx context.Context) error {
	switch asked := ps.desiredPhase(); asked {
	case sandbox.PhasePausing:
		return ps.pause(ctx)
	case sandbox.PhaseResuming:
		return ps.resume(ctx)
	}
	return nil
}

func (ps *pausing) pause(ctx context.Context) error {
	if err := ps.sb.cfg.Fault("pausing"); err != nil {
		return err
	}
	if ps.reboots() && ps.sb.session.Conn() != nil {
		// They need not stay in memory until their end. If that fails, or there is no connection,
		// they are ended before the sandbox resumes.
		if err := ps.sb.session.EndProcesses(ctx); err != nil && ctx.Err() == nil {
			ps.sb.cfg.Slog.Warn("end processes failed, will retry on resume", "sandbox", ps.sb.id, "err", err)
		}
	}
	err := ps.sb.current.Instance().Pause(ctx)
	if ps.paused = true; err != nil {
		ps.ResumeInstance(ctx) // it may be paused in part
		ps.markResumed()
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err := ps.sb.cfg.Fault("paused"); err != nil {
		return err
	}
	return ps.recordOutcome(ctx, sandbox.PhasePausing, func(s *sandbox.State) sandbox.Body {
		switch {
		case err == nil:
			return sandbox.Paused{}
		case s.Cause == sandbox.CauseTimeout:
			return sandbox.Stopping{Cause: sandbox.CauseTimeout} // it must not continue to run
		}
		ps.sb.cfg.Slog.Warn("pause sandbox failed", "sandbox", ps.sb.id, "err", err)
		return sandbox.Resumed{Message: failureMessage(err)}
	})
}

func (ps *pausing) resume(ctx context.Context) error {
	if err := ps.sb.cfg.Fault("resuming"); err != nil {
		return err
	}
	err := ps.sb.current.Instance().Resume(ctx)
	if ps.paused = err != nil; !ps.paused {
		ps.sb.session.SyncClock()
	}
	if err == nil && ps.reboots() {
		if ps.sb.session.Conn() == nil {
			ps.notify() // retried with a connection
			return ctx.Err()
		}
		err = ps.rebootInstance(ctx)
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		ps.sb.cfg.Slog.Warn("resume sandbox failed", "sandbox", ps.sb.id, "err", err)
	default:
		ps.markResumed()
	}
	if err := ps.sb.cfg.Fault("resumed"); err != nil {
		return err
	}
	return ps.recordOutcome(ctx, sandbox.PhaseResuming, func(*sandbox.State) sandbox.Body {
		if err != nil {
			return sandbox.Paused{Message: failureMessage(err)}
		}
		return sandbox.Resumed{}
	})
}

func (ps *pausing) reboots() bool {
	ps.sb.mu.Lock()
	defer ps.sb.mu.Unlock()
	return ps.reboot
}

// Changed returns a channel that has a value when the record may request a pause, a resume or the
// end.
func (ps *pausing) Changed() <-chan struct{} { return ps.poke }

// notify has the session reconcile again.
func (ps *pausing) notify() { waiting.Notify(ps.poke) }

// rebootInstance ends all processes of a sandbox whose resume is not recorded yet, and when their
// records have ended gives it a new instance. If that fails, the sandbox stays paused.
func (ps *pausing) rebootInstance(ctx context.Context) error {
	err := ps.sb.session.EndProcesses(ctx)
	if err == nil {
		err = ps.renew(ctx)
	}
	if err != nil && ctx.Err() == nil {
		ps.paused = true
		if err := ps.sb.current.Instance().Pause(ctx); err != nil {
			return err
		}
	}
	return err
}

// recordOutcome records the outcome of a request, if the record still has that request.
func (ps *pausing) recordOutcome(ctx context.Context, asked sandbox.Phase, what func(*sandbox.State) sandbox.Body) error {
	s, err := ps.sb.cfg.View.ChangeSandbox(ctx, ps.sb.id, func(s sandbox.State) ([]sandbox.Body, error) {
		if s.Phase != asked {
			return nil, nil
		}
		return []sandbox.Body{what(&s)}, nil
	})
	if err == nil {
		ps.sb.setDesired(&s)
	}
	return err
}
