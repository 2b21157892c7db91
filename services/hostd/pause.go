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

// A sandbox's record asks for a pause, as for an end, and the box obeys: so it
// does not matter who asked, nor which life of the host was there to hear it.

// standing reports whether the record says that the sandbox is paused, or on its
// way there or back.
func (b *box) standing() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := sandbox.State{Phase: b.told}
	return s.Standing() && !b.goes
}

// usable reports whether a command may be passed on: it is refused where it would
// wait for nobody knows how long. Somebody who knew of no pause yet is what wakes
// a sandbox whose creator wanted that.
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

// wake has the record ask for the end of a pause.
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

// goOn takes commands from now on, whatever the record says yet: who reads there
// that the sandbox goes on may be faster than we are.
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

// stand is where a box waits whose shim cannot be talked to because the sandbox
// is paused. It returns when there is somebody to talk to.
func (b *box) stand(ctx context.Context) error {
	switch {
	case !b.standing():
		b.thaw(ctx)
	case b.asked() == sandbox.PhasePaused:
		// The life before may have died while it let the place run, to keep its files.
		if err := b.instance().Pause(ctx); err != nil && ctx.Err() == nil && !kind.Is(err, kind.Unavailable) {
			b.h.slog.Warn("a sandbox that was paused may run", "sandbox", b.id, "err", err)
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

// thaw lets a place go on about which the record says nothing: what cannot be
// woken is destroyed as it is.
func (b *box) thaw(ctx context.Context) {
	if !b.still {
		return
	}
	if err := b.instance().Resume(ctx); err != nil && !kind.Is(err, kind.Unimplemented) && ctx.Err() == nil {
		b.h.slog.Warn("a sandbox does not wake", "sandbox", b.id, "err", err)
	}
	b.still = false
	b.catchUp()
}

// timeVersion is the talk that a shim must speak to be told the time (package wire).
const timeVersion = 8

// catchUp is for a place that stood still and goes on: a kernel of its own did not see
// time pass.
func (b *box) catchUp() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lags = true; b.conn != nil {
		b.tellTime(b.conn)
	}
}

// tellTime tells the shim of a place that has stood still what time it is, also on each
// connection after: the one before may have lost it. mu is held.
func (b *box) tellTime(conn *link.Conn) {
	if b.lags && conn.Version() >= timeVersion {
		conn.Send(func(dst []byte) []byte { return wire.AppendTime(dst, time.Now().UnixNano()) })
	}
}

// obey does what the record asks for, and says there what became of it.
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
		// They need not wait in memory for their end. Where that fails, or there is
		// nobody to tell, they are ended before the sandbox goes on.
		if err := b.endProcesses(ctx); err != nil && ctx.Err() == nil {
			b.h.slog.Warn("processes of a sandbox end when it goes on, not now", "sandbox", b.id, "err", err)
		}
	}
	err := b.instance().Pause(ctx)
	if b.still = true; err != nil {
		b.thaw(ctx) // of some of it, perhaps
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
			return sandbox.Stopping{Cause: sandbox.CauseTimeout} // it must not run on
		}
		b.h.slog.Warn("a sandbox cannot be paused", "sandbox", b.id, "err", err)
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
			b.again() // when there is somebody to tell
			return ctx.Err()
		}
		err = b.startOver(ctx)
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		b.h.slog.Warn("a sandbox does not wake", "sandbox", b.id, "err", err)
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

// rebootTimeout is how long the records of processes that were killed may take.
const rebootTimeout = 20 * time.Second

func (b *box) reboots() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.reboot
}

// again has the record's wish looked at once more.
func (b *box) again() {
	select {
	case b.turn <- struct{}{}:
	default:
	}
}

// startOver ends all processes of a sandbox that is awake but for us, and when their
// records have their ends gives it a new instance. What cannot be done leaves it paused.
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
		return kind.New(kind.Unimplemented, "reboot", string(b.id), "the sandbox was made by an older version, which cannot end its processes")
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
			return kind.New(kind.Unavailable, "reboot", string(b.id), "a process of it does not end")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// rebootVersion is the talk that a shim must speak to be rebooted (package wire).
const rebootVersion = 6

// note puts on record what became of what it asked for, if it still asks.
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
