package live

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/driver"
)

// Sweep removes the rest of a sandbox without processes: the parts that a driver made
// in dir and named in state.
type Sweep func(ctx context.Context, dir string, state State) error

// Attach implements the part of driver.Driver.Attach that all drivers share: it returns
// the running sandbox in s.Dir that the named driver created. It sweeps the rest of
// a sandbox that has ended, within ctx, and returns NotFound.
func Attach(ctx context.Context, s driver.Spec, name string, sweep Sweep) (State, *Proc, error) {
	state, err := Saved(s.Dir, name, s.ID)
	if err != nil {
		return state, nil, err
	}
	proc, err := Find(state)
	if errors.Is(err, ErrGone) {
		if err := sweep(ctx, s.Dir, state); err != nil {
			return state, nil, kind.Wrap(kind.Internal, "remove", string(s.ID), err)
		}
		return state, nil, kind.New(kind.NotFound, "attach", string(s.ID), "the sandbox has ended")
	}
	return state, proc, kind.Wrap(kind.Internal, "attach", string(s.ID), err)
}

// Reattach implements driver.Driver.Attach with the Instance that newInstance returns.
func Reattach[B driver.Instance](ctx context.Context, s driver.Spec, name string, sweep Sweep, newInstance func(string, State, *Proc) B) (driver.Instance, error) {
	ctx, cancel := context.WithTimeout(ctx, DestroyTimeout)
	defer cancel()
	state, proc, err := Attach(ctx, s, name, sweep)
	if err != nil {
		return nil, err
	}
	return newInstance(s.Dir, state, proc), nil
}

// CheckVacant returns Conflict if an instance of d runs in s.Dir, where d is about to
// create one.
func CheckVacant(ctx context.Context, d driver.Driver, s driver.Spec) error {
	if _, err := Load(s.Dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	_, err := d.Attach(ctx, s)
	if kind.Is(err, kind.NotFound) {
		return nil
	}
	if err == nil {
		return kind.New(kind.Conflict, "create sandbox", string(s.ID), "the sandbox already exists")
	}
	return err
}

// Rollback removes what a failed create made, and returns the error for its caller. It
// works also when ctx has ended. What cannot be removed is logged, and found by Attach.
func Rollback(ctx context.Context, log *slog.Logger, dir string, state State, sweep Sweep, err error) error {
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), DestroyTimeout)
	defer cancel()
	if left := sweep(ctx, dir, state); left != nil {
		log.Error("remove partially created sandbox failed", "sandbox", state.ID, "err", left)
	}
	return Failed(state.ID, err)
}

// Failed wraps the error of a create for its caller; nil remains nil.
func Failed(id sandbox.ID, err error) error {
	return kind.Wrap(kindOf(err), "create sandbox", string(id), err)
}

// kindOf returns the kind of a failed create: a resource that the host lacks now may be
// available later.
func kindOf(err error) kind.Kind {
	switch {
	case kind.Of(err) != kind.Internal:
		return kind.Of(err)
	case errors.Is(err, unix.E2BIG), errors.Is(err, unix.ENAMETOOLONG):
		return kind.Invalid
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.ENOMEM), errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EMFILE):
		return kind.Unavailable
	}
	return kind.Internal
}
