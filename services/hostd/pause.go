package hostd

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/link"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// A sandbox's record is its desired state: it requests a pause as it requests an end, and
// reconcile brings the instance there. So it does not matter which client asked, nor which run of
// the host was active then.

// suspended reports whether the record has the sandbox paused, or on its way there or back.
func (sb *hostSandbox) suspended() bool {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	s := sandbox.State{Phase: sb.desired}
	return s.InPause() && !sb.resumed
}

// usable reports whether a command may be forwarded: it is refused where it would wait for an
// unknown time. A client that did not see the pause yet resumes a sandbox whose creator asked for
// that.
func (sb *hostSandbox) usable() error {
	switch {
	case !sb.suspended():
		return nil
	case sb.req.AutoResume && !sb.reboots():
		sb.h.spawn("wake "+string(sb.id), func() error { return sb.wake(sb.h.runCtx) })
		return nil
	}
	return kind.New(kind.Conflict, "command", string(sb.id), "the sandbox is paused")
}

// wake requests the end of a pause in the record.
func (sb *hostSandbox) wake(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	_, err := sb.h.view.AwaitSandbox(ctx, sb.id, func(s *sandbox.State) bool { return s.Phase != sandbox.PhasePausing })
	if err != nil {
		return err
	}
	_, err = sb.h.view.ChangeSandbox(ctx, sb.id, func(s sandbox.State) ([]sandbox.Body, error) {
		if s.Phase != sandbox.PhasePaused {
			return nil, nil
		}
		return s.ResumeEvents(), nil
	})
	return err
}

// markResumed accepts commands from now on, whatever phase the record has yet: a client that
// reads there that the sandbox is resumed may be faster than the view.
func (sb *hostSandbox) markResumed() {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	sb.resumed = true
}

func (sb *hostSandbox) desiredPhase() sandbox.Phase {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	return sb.desired
}

// awaitResumed waits while the shim cannot be reached because the sandbox is paused.
func (sb *hostSandbox) awaitResumed(ctx context.Context) error {
	switch {
	case !sb.suspended():
		sb.resumeInstance(ctx)
	case sb.desiredPhase() == sandbox.PhasePaused:
		// The previous run may have died while it let the instance run to save its files.
		if err := sb.instance().Pause(ctx); err != nil && ctx.Err() == nil && !kind.Is(err, kind.Unavailable) {
			sb.h.slog.Warn("pause sandbox again failed", "sandbox", sb.id, "err", err)
		}
	}
	for {
		if err := sb.reconcile(ctx); err != nil || !sb.paused {
			return err
		}
		select {
		case <-sb.poke:
		case <-sb.stop:
			sb.resumeInstance(ctx)
			return nil
		case <-sb.instance().Done():
			return errShimGone
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// resumeInstance resumes an instance without a request in the record: one that cannot be resumed
// is destroyed as it is.
func (sb *hostSandbox) resumeInstance(ctx context.Context) {
	if !sb.paused {
		return
	}
	if err := sb.instance().Resume(ctx); err != nil && !kind.Is(err, kind.Unimplemented) && ctx.Err() == nil {
		sb.h.slog.Warn("resume sandbox failed", "sandbox", sb.id, "err", err)
	}
	sb.paused = false
	sb.syncClock()
}

// timeVersion is the first protocol version in which a shim accepts the time (package wire).
const timeVersion = 8

// syncClock sends the time to the shim of an instance that was resumed: a kernel of its own did
// not see it pass.
func (sb *hostSandbox) syncClock() {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	if sb.clockBehind = true; sb.conn != nil {
		sb.sendTime(sb.conn)
	}
}

// sendTime sends the time to the shim of an instance that was paused, also on each later
// connection: the one before may have lost it. mu is held.
func (sb *hostSandbox) sendTime(conn *link.Conn) {
	if sb.clockBehind && conn.Version() >= timeVersion {
		conn.Send(func(dst []byte) []byte { return wire.AppendTime(dst, time.Now().UnixNano()) })
	}
}

// reconcile brings the instance to the desired state and records the outcome.
func (sb *hostSandbox) reconcile(ctx context.Context) error {
	switch asked := sb.desiredPhase(); asked {
	case sandbox.PhasePausing:
		return sb.pause(ctx)
	case sandbox.PhaseResuming:
		return sb.resume(ctx)
	}
	return nil
}

func (sb *hostSandbox) pause(ctx context.Context) error {
	if err := sb.h.fault("pausing"); err != nil {
		return err
	}
	if sb.reboots() && sb.link() != nil {
		// They need not stay in memory until their end. If that fails, or there is no connection,
		// they are ended before the sandbox resumes.
		if err := sb.endProcesses(ctx); err != nil && ctx.Err() == nil {
			sb.h.slog.Warn("end processes failed, will retry on resume", "sandbox", sb.id, "err", err)
		}
	}
	err := sb.instance().Pause(ctx)
	if sb.paused = true; err != nil {
		sb.resumeInstance(ctx) // it may be paused in part
		sb.markResumed()
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err := sb.h.fault("paused"); err != nil {
		return err
	}
	return sb.recordOutcome(ctx, sandbox.PhasePausing, func(s *sandbox.State) sandbox.Body {
		switch {
		case err == nil:
			return sandbox.Paused{}
		case s.Cause == sandbox.CauseTimeout:
			return sandbox.Stopping{Cause: sandbox.CauseTimeout} // it must not continue to run
		}
		sb.h.slog.Warn("pause sandbox failed", "sandbox", sb.id, "err", err)
		return sandbox.Resumed{Message: failureMessage(err)}
	})
}

func (sb *hostSandbox) resume(ctx context.Context) error {
	if err := sb.h.fault("resuming"); err != nil {
		return err
	}
	err := sb.instance().Resume(ctx)
	if sb.paused = err != nil; !sb.paused {
		sb.syncClock()
	}
	if err == nil && sb.reboots() {
		if sb.link() == nil {
			sb.pokeServe() // retried with a connection
			return ctx.Err()
		}
		err = sb.rebootInstance(ctx)
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		sb.h.slog.Warn("resume sandbox failed", "sandbox", sb.id, "err", err)
	default:
		sb.markResumed()
	}
	if err := sb.h.fault("resumed"); err != nil {
		return err
	}
	return sb.recordOutcome(ctx, sandbox.PhaseResuming, func(*sandbox.State) sandbox.Body {
		if err != nil {
			return sandbox.Paused{Message: failureMessage(err)}
		}
		return sandbox.Resumed{}
	})
}

// rebootTimeout bounds the wait for the records of killed processes.
const rebootTimeout = 20 * time.Second

func (sb *hostSandbox) reboots() bool {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	return sb.reboot
}

// pokeServe has serve or awaitResumed reconcile again.
func (sb *hostSandbox) pokeServe() {
	select {
	case sb.poke <- struct{}{}:
	default:
	}
}

// rebootInstance ends all processes of a sandbox whose resume is not recorded yet, and when their
// records have ended gives it a new instance. If that fails, the sandbox stays paused.
func (sb *hostSandbox) rebootInstance(ctx context.Context) error {
	err := sb.endProcesses(ctx)
	if err == nil {
		err = sb.renew(ctx)
	}
	if err != nil && ctx.Err() == nil {
		sb.paused = true
		if err := sb.instance().Pause(ctx); err != nil {
			return err
		}
	}
	return err
}

func (sb *hostSandbox) endProcesses(ctx context.Context) error {
	sb.mu.Lock()
	conn, procs := sb.conn, slices.Collect(maps.Values(sb.procs))
	sb.mu.Unlock()
	switch {
	case conn == nil:
		return kind.New(kind.Unavailable, "reboot", string(sb.id), "the sandbox's shim is away")
	case conn.Version() < rebootVersion:
		return kind.New(kind.Unimplemented, "reboot", string(sb.id), "the sandbox was created by an older version, which cannot end its processes")
	}
	conn.Send(wire.AppendReboot)
	late := time.NewTimer(rebootTimeout)
	defer late.Stop()
	for _, p := range procs {
		select {
		case <-p.done:
		case <-sb.instance().Done():
			return errShimGone
		case <-late.C:
			return kind.New(kind.Unavailable, "reboot", string(sb.id), "a process does not end")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// rebootVersion is the first protocol version in which a shim can be rebooted (package wire).
const rebootVersion = 6

// recordOutcome records the outcome of a request, if the record still has that request.
func (sb *hostSandbox) recordOutcome(ctx context.Context, asked sandbox.Phase, what func(*sandbox.State) sandbox.Body) error {
	s, err := sb.h.view.ChangeSandbox(ctx, sb.id, func(s sandbox.State) ([]sandbox.Body, error) {
		if s.Phase != asked {
			return nil, nil
		}
		return []sandbox.Body{what(&s)}, nil
	})
	if err == nil {
		sb.setDesired(&s)
	}
	return err
}
