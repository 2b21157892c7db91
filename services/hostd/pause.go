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
func (b *box) standing() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := sandbox.State{Phase: b.told}
	return s.Standing() && !b.goes
}

// usable reports whether a command may be forwarded: it is refused where it would wait for an
// unknown time. A client that did not see the pause yet resumes a sandbox whose creator asked for
// that.
func (b *box) usable() error {
	switch {
	case !b.standing():
		return nil
	case b.req.AutoResume && !b.reboots():
		b.h.spawn("wake "+string(b.id), func() error { return b.wake(b.h.life) })
		return nil
	}
	return kind.New(kind.Conflict, "command", string(b.id), "the sandbox is paused")
}

// wake requests the end of a pause in the record.
func (b *box) wake(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	_, err := b.h.view.AwaitSandbox(ctx, b.id, func(s *sandbox.State) bool { return s.Phase != sandbox.PhasePausing })
	if err != nil {
		return err
	}
	_, err = b.h.view.ChangeSandbox(ctx, b.id, func(s sandbox.State) ([]sandbox.Body, error) {
		if s.Phase != sandbox.PhasePaused {
			return nil, nil
		}
		return s.Woken(), nil
	})
	return err
}

// markResumed accepts commands from now on, whatever phase the record has yet: a client that
// reads there that the sandbox is resumed may be faster than the view.
func (b *box) goOn() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.goes = true
}

func (b *box) asked() sandbox.Phase {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.told
}

// awaitResumed waits while the shim cannot be reached because the sandbox is paused.
func (b *box) stand(ctx context.Context) error {
	switch {
	case !b.standing():
		b.thaw(ctx)
	case b.asked() == sandbox.PhasePaused:
		// The previous run may have died while it let the instance run to save its files.
		if err := b.instance().Pause(ctx); err != nil && ctx.Err() == nil && !kind.Is(err, kind.Unavailable) {
			b.h.slog.Warn("pause sandbox again failed", "sandbox", b.id, "err", err)
		}
	}
	for {
		if err := b.obey(ctx); err != nil || !b.still {
			return err
		}
		select {
		case <-b.turn:
		case <-b.stop:
			b.thaw(ctx)
			return nil
		case <-b.instance().Done():
			return errShimGone
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// resumeInstance resumes an instance without a request in the record: one that cannot be resumed
// is destroyed as it is.
func (b *box) thaw(ctx context.Context) {
	if !b.still {
		return
	}
	if err := b.instance().Resume(ctx); err != nil && !kind.Is(err, kind.Unimplemented) && ctx.Err() == nil {
		b.h.slog.Warn("resume sandbox failed", "sandbox", b.id, "err", err)
	}
	b.still = false
	b.catchUp()
}

// timeVersion is the first protocol version in which a shim accepts the time (package wire).
const timeVersion = 8

// syncClock sends the time to the shim of an instance that was resumed: a kernel of its own did
// not see it pass.
func (b *box) catchUp() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lags = true; b.conn != nil {
		b.tellTime(b.conn)
	}
}

// sendTime sends the time to the shim of an instance that was paused, also on each later
// connection: the one before may have lost it. mu is held.
func (b *box) tellTime(conn *link.Conn) {
	if b.lags && conn.Version() >= timeVersion {
		conn.Send(func(dst []byte) []byte { return wire.AppendTime(dst, time.Now().UnixNano()) })
	}
}

// reconcile brings the instance to the desired state and records the outcome.
func (b *box) obey(ctx context.Context) error {
	switch asked := b.asked(); asked {
	case sandbox.PhasePausing:
		return b.pause(ctx)
	case sandbox.PhaseResuming:
		return b.resume(ctx)
	}
	return nil
}

func (b *box) pause(ctx context.Context) error {
	if err := b.h.fault("pausing"); err != nil {
		return err
	}
	if b.reboots() && b.link() != nil {
		// They need not stay in memory until their end. If that fails, or there is no connection,
		// they are ended before the sandbox resumes.
		if err := b.endProcesses(ctx); err != nil && ctx.Err() == nil {
			b.h.slog.Warn("end processes failed, will retry on resume", "sandbox", b.id, "err", err)
		}
	}
	err := b.instance().Pause(ctx)
	if b.still = true; err != nil {
		b.thaw(ctx) // it may be paused in part
		b.goOn()
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err := b.h.fault("paused"); err != nil {
		return err
	}
	return b.note(ctx, sandbox.PhasePausing, func(s *sandbox.State) sandbox.Body {
		switch {
		case err == nil:
			return sandbox.Paused{}
		case s.Cause == sandbox.CauseTimeout:
			return sandbox.Stopping{Cause: sandbox.CauseTimeout} // it must not continue to run
		}
		b.h.slog.Warn("pause sandbox failed", "sandbox", b.id, "err", err)
		return sandbox.Resumed{Message: failure(err)}
	})
}

func (b *box) resume(ctx context.Context) error {
	if err := b.h.fault("resuming"); err != nil {
		return err
	}
	err := b.instance().Resume(ctx)
	if b.still = err != nil; !b.still {
		b.catchUp()
	}
	if err == nil && b.reboots() {
		if b.link() == nil {
			b.again() // retried with a connection
			return ctx.Err()
		}
		err = b.startOver(ctx)
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		b.h.slog.Warn("resume sandbox failed", "sandbox", b.id, "err", err)
	default:
		b.goOn()
	}
	if err := b.h.fault("resumed"); err != nil {
		return err
	}
	return b.note(ctx, sandbox.PhaseResuming, func(*sandbox.State) sandbox.Body {
		if err != nil {
			return sandbox.Paused{Message: failure(err)}
		}
		return sandbox.Resumed{}
	})
}

// rebootTimeout bounds the wait for the records of killed processes.
const rebootTimeout = 20 * time.Second

func (b *box) reboots() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.reboot
}

// pokeServe has serve or awaitResumed reconcile again.
func (b *box) again() {
	select {
	case b.turn <- struct{}{}:
	default:
	}
}

// rebootInstance ends all processes of a sandbox whose resume is not recorded yet, and when their
// records have ended gives it a new instance. If that fails, the sandbox stays paused.
func (b *box) startOver(ctx context.Context) error {
	err := b.endProcesses(ctx)
	if err == nil {
		err = b.renew(ctx)
	}
	if err != nil && ctx.Err() == nil {
		b.still = true
		if err := b.instance().Pause(ctx); err != nil {
			return err
		}
	}
	return err
}

func (b *box) endProcesses(ctx context.Context) error {
	b.mu.Lock()
	conn, procs := b.conn, slices.Collect(maps.Values(b.procs))
	b.mu.Unlock()
	switch {
	case conn == nil:
		return kind.New(kind.Unavailable, "reboot", string(b.id), "the sandbox's shim is away")
	case conn.Version() < rebootVersion:
		return kind.New(kind.Unimplemented, "reboot", string(b.id), "the sandbox was created by an older version, which cannot end its processes")
	}
	conn.Send(wire.AppendReboot)
	late := time.NewTimer(rebootTimeout)
	defer late.Stop()
	for _, p := range procs {
		select {
		case <-p.done:
		case <-b.instance().Done():
			return errShimGone
		case <-late.C:
			return kind.New(kind.Unavailable, "reboot", string(b.id), "a process does not end")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// rebootVersion is the first protocol version in which a shim can be rebooted (package wire).
const rebootVersion = 6

// recordOutcome records the outcome of a request, if the record still has that request.
func (b *box) note(ctx context.Context, asked sandbox.Phase, what func(*sandbox.State) sandbox.Body) error {
	s, err := b.h.view.ChangeSandbox(ctx, b.id, func(s sandbox.State) ([]sandbox.Body, error) {
		if s.Phase != asked {
			return nil, nil
		}
		return []sandbox.Body{what(&s)}, nil
	})
	if err == nil {
		b.tell(&s)
	}
	return err
}
