package live

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/cgroup"
)

// DestroyTimeout is the maximum duration of Destroy.
const DestroyTimeout = 5 * time.Second

// Instance is a running sandbox of a driver that isolates processes: a driver.Instance.
type Instance struct {
	State State
	Dir   string
	Proc  *Proc
	Group *cgroup.Group // cgroup of its processes; nil: none

	// Kill ends every process of the sandbox, frozen or not, and returns when
	// they have ended.
	Kill func(context.Context) error
	// Sweep removes the rest of the sandbox once its processes have ended.
	Sweep func(context.Context) error
	// Freezer stops and starts the processes. Nil: not supported.
	Freezer Freezer
	// Save fills a directory with the files while nothing changes them. Nil: not
	// supported.
	Save func(ctx context.Context, dir string) error
	// Checkpoint stops the sandbox and copies it, with its memory too, where the
	// driver has its own way to do so. It replaces Freezer and Save for snapshots
	// that Save cannot make. Nil: they do it.
	Checkpoint func(ctx context.Context, dir string, memory bool) error
	// SetName changes the host name. Nil: not supported.
	SetName func(hostname string) error
	// Measure implements Stats. Nil: no statistics.
	Measure func(context.Context) (driver.Stats, error)

	// Net reports that the first process is in a network namespace of the sandbox's own.
	Net bool

	transitions sync.Mutex // held while the sandbox is stopped, started or copied
	mu          sync.Mutex
	destroyed   bool // guarded by mu: Destroy has succeeded
}

// Freezer stops all processes of a sandbox at once.
type Freezer interface {
	Freeze(context.Context) error
	Thaw(context.Context) error
	Frozen() (bool, error)
}

// Dial implements driver.Instance.
func (b *Instance) Dial(ctx context.Context) (net.Conn, error) {
	conn, err := Dial(ctx, b.Dir)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, kind.Wrap(kind.Unavailable, "dial shim", string(b.State.ID), err)
	}
	return conn, nil
}

// NetNS implements driver.Networked.
func (b *Instance) NetNS() (*os.File, error) {
	if !b.Net {
		return nil, b.unsupported("enter the network of")
	}
	f, err := os.Open(filepath.Join("/proc", strconv.Itoa(b.State.PID), "ns", "net"))
	if err == nil && b.Proc.Ended() { // another process may have the pid now
		f.Close()
		err = errGone
	}
	if err != nil {
		return nil, kind.Wrap(kind.Unavailable, "enter the network", string(b.State.ID), err)
	}
	return f, nil
}

// Rename implements driver.Renamer.
func (b *Instance) Rename(hostname string) error {
	if b.SetName == nil {
		return b.unsupported("rename")
	}
	err := b.SetName(hostname)
	if b.ended() { // another process may have the pid now
		err = errGone
	}
	return kind.Wrap(kind.Unavailable, "rename sandbox", string(b.State.ID), err)
}

// Done implements driver.Instance.
func (b *Instance) Done() <-chan struct{} { return b.Proc.Done() }

// Pause implements driver.Instance.
func (b *Instance) Pause(ctx context.Context) error {
	return b.transition("pause", func() error { return b.Freezer.Freeze(ctx) })
}

// Resume implements driver.Instance.
func (b *Instance) Resume(ctx context.Context) error {
	return b.transition("resume", func() error { return b.Freezer.Thaw(ctx) })
}

// transition calls do if the sandbox can be stopped, after any other transition has
// ended. Destroy does not wait for transitions.
func (b *Instance) transition(what string, do func() error) error {
	if b.Freezer == nil {
		return b.unsupported(what)
	}
	b.transitions.Lock()
	defer b.transitions.Unlock()
	b.restorePriority()
	err := errGone
	if !b.ended() {
		err = do()
	}
	// A cgroup that is removed during the call reports that it does not exist.
	if err != nil && b.ended() {
		return kind.Wrap(kind.Unavailable, what+" sandbox", string(b.State.ID), errGone)
	}
	return kind.Wrap(kind.Of(err), what+" sandbox", string(b.State.ID), err)
}

var errGone = errors.New("the sandbox has ended")

// ended reports whether the shim has ended.
func (b *Instance) ended() bool {
	select {
	case <-b.Proc.Done():
		return true
	default:
		return false
	}
}

// Snapshot implements driver.Instance.
func (b *Instance) Snapshot(ctx context.Context, dir string, memory bool) error {
	switch {
	case b.Checkpoint != nil && (memory || b.Save == nil):
		return b.transition("snapshot", func() error {
			if err := b.Checkpoint(ctx, dir, memory); err != nil {
				return errors.Join(err, empty(dir))
			}
			return nil
		})
	case memory:
		return b.unsupported("keep the memory of")
	case b.Save == nil || b.Freezer == nil:
		return b.unsupported("snapshot")
	}
	return b.transition("snapshot", func() error {
		frozen, err := b.Freezer.Frozen()
		if err != nil {
			return err
		}
		if !frozen {
			if err := b.Freezer.Freeze(ctx); err != nil {
				return err
			}
			// ctx may have ended, but the sandbox must run again.
			defer b.Freezer.Thaw(context.WithoutCancel(ctx)) //nolint:errcheck // Resume repeats it
		}
		err = b.Save(ctx, dir)
		if err == nil && b.ended() {
			err = errGone // and then part of the files may have been missing before they were copied
		}
		if err != nil {
			return errors.Join(err, empty(dir))
		}
		return nil
	})
}

// empty removes the contents of dir.
func empty(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := Remove(dir, e.Name()); err != nil {
			return err
		}
	}
	return nil
}

// Stats implements driver.Instance.
func (b *Instance) Stats(ctx context.Context) (driver.Stats, error) {
	if b.Measure == nil {
		return driver.Stats{}, nil
	}
	s, err := b.Measure(ctx)
	return s, kind.Wrap(kind.Of(err), "measure sandbox", string(b.State.ID), err)
}

// CPUTime implements driver.Deprioritizer.
func (b *Instance) CPUTime() (time.Duration, error) {
	cpu, ok := b.Group.CPU()
	switch {
	case b.ended():
		return 0, kind.Wrap(kind.Unavailable, "measure sandbox", string(b.State.ID), errGone)
	case !ok:
		return 0, b.unsupported("count the CPU time of")
	}
	return cpu, nil
}

// SetDeprioritized implements driver.Deprioritizer.
func (b *Instance) SetDeprioritized(yes bool) error {
	const what = "deprioritize"
	err := b.Group.SetDeprioritized(yes)
	switch {
	case err == nil:
		return nil
	case b.ended():
		return kind.Wrap(kind.Unavailable, what, string(b.State.ID), errGone)
	case errors.Is(err, cgroup.ErrNotSupported):
		return b.unsupported(what)
	}
	return kind.Wrap(kind.Of(err), what, string(b.State.ID), err)
}

// restorePriority gives the processes the CPU time that they need to stop and to end.
func (b *Instance) restorePriority() {
	b.SetDeprioritized(false) //nolint:errcheck // they stop and end anyway
}

func (b *Instance) unsupported(what string) error {
	return kind.Newf(kind.Unimplemented, what, string(b.State.ID), "driver %s cannot %s a sandbox here", b.State.Driver, what)
}

// Destroy implements driver.Instance.
func (b *Instance) Destroy(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.destroyed {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, DestroyTimeout)
	defer cancel()
	b.restorePriority()
	if err := b.Kill(ctx); err != nil {
		return kind.Wrap(kind.Of(err), "kill sandbox", string(b.State.ID), err)
	}
	if err := b.Sweep(ctx); err != nil {
		return kind.Wrap(kind.Of(err), "remove sandbox", string(b.State.ID), err)
	}
	b.destroyed = true
	return nil
}

// Kill kills p and waits until it has ended.
func Kill(ctx context.Context, p *Proc) error { return KillFrozen(ctx, p, nil) }

// KillFrozen is Kill for a process that may be frozen. It thaws the process repeatedly,
// in case it is frozen again: with some freezers it does not die otherwise.
func KillFrozen(ctx context.Context, p *Proc, freezer Freezer) error {
	select {
	case <-p.Done():
		return nil
	default:
	}
	if err := p.Kill(); err != nil {
		return err
	}
	retry := time.NewTicker(20 * time.Millisecond)
	defer retry.Stop()
	for {
		if freezer != nil {
			if err := freezer.Thaw(ctx); err != nil {
				return err
			}
		}
		select {
		case <-p.Done():
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-retry.C:
		}
	}
}
