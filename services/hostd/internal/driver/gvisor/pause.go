//go:build linux

package gvisor

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/waiting"
)

// tasks stops a sandbox's tasks by gVisor itself. A frozen cgroup does not work:
// thawing it killed some of what gVisor ran by a segmentation fault. The request goes
// to the sandbox's own process, as runsc would send it: to run runsc for it takes a
// hundred times as long. GVisor counts the stops and dies of an excess start, so the
// transition is recorded before it happens.
type tasks struct{ *instance }

// Contents of pauseFile. Without the file the sandbox runs. All have one length, so
// that each atomically overwrites the previous one: creating a new file and renaming
// it takes longer than the stop.
const (
	pauseFile = "pause"
	changing  = "changing" // a stop or start is in progress, or was interrupted
	paused    = "paused  "
	running   = "running "
)

// Freeze implements live.Freezer.
func (t tasks) Freeze(ctx context.Context) error { return t.set(ctx, true, "containerManager.Pause") }

// Thaw implements live.Freezer.
func (t tasks) Thaw(ctx context.Context) error { return t.set(ctx, false, "containerManager.Resume") }

// Frozen implements live.Freezer.
func (t tasks) Frozen() (bool, error) {
	t.transition.Lock()
	defer t.transition.Unlock()
	return t.frozen()
}

// set stops or starts the sandbox. It completes the transition, even if ctx
// ends.
func (t tasks) set(ctx context.Context, stop bool, method string) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	t.transition.Lock()
	defer t.transition.Unlock()
	if on, err := t.frozen(); on == stop || err != nil {
		return err
	}
	if err := t.r.record(changing); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTimeout)
	defer cancel()
	if err := t.control.call(ctx, method, struct{}{}, nil); err != nil {
		return t.settle(err)
	}
	return t.r.recordPause(stop)
}

// frozen reads the recorded state; after an interruption it determines the actual one.
func (t tasks) frozen() (bool, error) {
	state, err := t.r.recorded()
	if err != nil || state == running || state == paused {
		return state == paused, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), finishTimeout)
	defer cancel()
	stopped, err := t.determine(ctx)
	if err != nil {
		return false, t.settle(err)
	}
	return stopped, t.r.recordPause(stopped)
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

func (r *runsc) recordPause(stopped bool) error {
	if stopped {
		return r.record(paused)
	}
	return r.record(running)
}

// recorded returns the state that was recorded last.
func (r *runsc) recorded() (string, error) {
	b, err := os.ReadFile(r.in(pauseFile))
	if errors.Is(err, fs.ErrNotExist) {
		return running, nil
	}
	return string(b), err
}

func (r *runsc) record(what string) error {
	f, err := os.OpenFile(r.in(pauseFile), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteAt([]byte(what), 0)
	return errors.Join(err, f.Close())
}

// determine reports whether all tasks are stopped, from the stacks of gVisor's own
// program.
func (t tasks) determine(ctx context.Context) (bool, error) {
	const rounds, pause = 100, 10 * time.Millisecond // a stop may be in progress
	for range rounds {
		var stacks string
		if err := t.control.call(ctx, "debug.Stacks", struct{}{}, &stacks); err != nil {
			return false, err
		}
		all, stopped := strings.Count(stacks, "kernel.(*Task).run("), strings.Count(stacks, "kernel.(*Task).doStop(")
		if all > 0 && all == stopped {
			return true, nil
		}
		if !waiting.Sleep(ctx, pause) {
			return false, ctx.Err()
		}
	}
	return false, nil
}
