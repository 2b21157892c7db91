//go:build linux

package gvisor

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"time"
)

// tasks stops a sandbox's tasks by gVisor itself. A frozen cgroup is no way: of
// what gVisor runs, some was killed by a segmentation fault when it was thawed. The
// sandbox's own process is asked, as runsc does: to run runsc for it takes a
// hundred times as long. GVisor counts the stops and dies of a start too many, so
// that what is about to be done is noted down before.
type tasks struct{ *box }

// What is in stillFile. Without the file the sandbox runs. All are of one length, so
// that each is written over the one before, at once: a file that is made anew for it,
// and put in the old one's place, takes longer than the stop.
const (
	stillFile = "still"
	moves     = "moves " // it is being stopped or started, or somebody was cut off there
	stands    = "stands"
	runs      = "runs  "
)

// Freeze is live.Brake.Freeze.
func (t tasks) Freeze(ctx context.Context) error { return t.turn(ctx, true, "containerManager.Pause") }

// Thaw is live.Brake.Thaw.
func (t tasks) Thaw(ctx context.Context) error { return t.turn(ctx, false, "containerManager.Resume") }

// Frozen is live.Brake.Frozen.
func (t tasks) Frozen() (bool, error) {
	t.still.Lock()
	defer t.still.Unlock()
	return t.frozen()
}

// turn has the sandbox stand or run. What it has begun it ends, whatever becomes of
// ctx.
func (t tasks) turn(ctx context.Context, stand bool, method string) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	t.still.Lock()
	defer t.still.Unlock()
	if on, err := t.frozen(); on == stand || err != nil {
		return err
	}
	if err := t.r.note(moves); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTimeout)
	defer cancel()
	if err := t.control.call(ctx, method, struct{}{}, nil); err != nil {
		return t.settle(err)
	}
	return t.r.noteStill(stand)
}

// frozen reads what was noted down; after somebody was cut off, it finds out.
func (t tasks) frozen() (bool, error) {
	noted, err := t.r.noted()
	if err != nil || noted == runs || noted == stands {
		return noted == stands, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), finishTimeout)
	defer cancel()
	stand, err := t.standing(ctx)
	if err != nil {
		return false, t.settle(err)
	}
	return stand, t.r.noteStill(stand)
}

// settle waits, after an error, for the sandbox to be gone, if it is going: then it
// is known what the error means.
func (t tasks) settle(err error) error {
	select {
	case <-t.Done():
	case <-time.After(time.Second):
	}
	return err
}

func (r *runsc) noteStill(stand bool) error {
	if stand {
		return r.note(stands)
	}
	return r.note(runs)
}

// noted is what was noted down last.
func (r *runsc) noted() (string, error) {
	b, err := os.ReadFile(r.in(stillFile))
	if errors.Is(err, fs.ErrNotExist) {
		return runs, nil
	}
	return string(b), err
}

func (r *runsc) note(what string) error {
	f, err := os.OpenFile(r.in(stillFile), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteAt([]byte(what), 0)
	return errors.Join(err, f.Close())
}

// standing finds out whether all tasks stand: where they are in gVisor's own
// program tells.
func (t tasks) standing(ctx context.Context) (bool, error) {
	const looks, pause = 100, 10 * time.Millisecond // a stop may be under way
	for range looks {
		var stacks string
		if err := t.control.call(ctx, "debug.Stacks", struct{}{}, &stacks); err != nil {
			return false, err
		}
		all, stopped := strings.Count(stacks, "kernel.(*Task).run("), strings.Count(stacks, "kernel.(*Task).doStop(")
		if all > 0 && all == stopped {
			return true, nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	return false, nil
}
