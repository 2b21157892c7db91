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

// tasks stops a sandbox's tasks by gVisor itself. A frozen cgroup does not work:
// thawing it killed some of what gVisor ran by a segmentation fault. The request goes
// to the sandbox's own process, as runsc would send it: to run runsc for it takes a
// hundred times as long. GVisor counts the stops and dies of an excess start, so the
// transition is recorded before it happens.
type tasks struct{ *box }

// Contents of pauseFile. Without the file the sandbox runs. All have one length, so
// that each atomically overwrites the previous one: creating a new file and renaming
// it takes longer than the stop.
const (
	stillFile = "still"
	moves     = "moves " // a stop or start is in progress, or was interrupted
	stands    = "stands"
	runs      = "runs  "
)

// Freeze implements live.Freezer.
func (t tasks) Freeze(ctx context.Context) error { return t.turn(ctx, true, "containerManager.Pause") }

// Thaw implements live.Freezer.
func (t tasks) Thaw(ctx context.Context) error { return t.turn(ctx, false, "containerManager.Resume") }

// Frozen implements live.Freezer.
func (t tasks) Frozen() (bool, error) {
	t.still.Lock()
	defer t.still.Unlock()
	return t.frozen()
}

// turn stops or starts the sandbox. It completes what it has begun, even if ctx
// ends.
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

// frozen reads the recorded state; after an interruption it determines the actual one.
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

// settle waits, after an error, for the sandbox to end, if it is ending: only then
// is the cause of the error known.
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

// recorded returns the state that was recorded last.
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

// paused determines whether all tasks are stopped, from the stacks of gVisor's own
// program.
func (t tasks) standing(ctx context.Context) (bool, error) {
	const looks, pause = 100, 10 * time.Millisecond // a stop may be in progress
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
