// Package direct does not isolate. The shim and all that it starts run as hostd's own
// user, can access all of the host's files, processes and network, and can kill hostd.
// It is for development, and for machines that are themselves disposable; it
// is used only when selected by name.
//
// It does provide a home directory of the sandbox's own (Spec.Dir/home), which
// is the content of a snapshot and is copied into each instance made from one; where
// hostd is root, volumes at their paths, in a mount namespace of its own; an environment
// without the host's variables, and an end that reaches all of its processes: by cgroup
// where hostd may create one, otherwise by searching /proc for the shim's descendants and
// for processes that have the sandbox's id in their environment. A process that leaves the
// shim's tree and clears its environment escapes the search.
package direct

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/millrace/millrace/events/bootstrap"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/cgroup"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/live"
	"github.com/millrace/millrace/services/hostd/internal/driver/usage"
)

const (
	name    = "direct"
	homeDir = "home"

	// idVariable marks the processes of a sandbox.
	idVariable = "MILLRACE_SANDBOX_ID"

	// startTimeout is how long the child of a hostd that was killed while it started
	// a shim may need to become one, and so be recognizable by its environment.
	startTimeout = 200 * time.Millisecond
)

// Config configures a Driver; its zero value works.
type Config struct {
	// Log receives problems that are not returned as errors. Nil: discarded.
	Log *slog.Logger
}

// Driver runs shims as plain children; see the package documentation. It is safe for
// concurrent use.
type Driver struct {
	log    *slog.Logger
	groups func() *cgroup.Tree
}

var _ driver.Driver = (*Driver)(nil)

// New returns a Driver. It has no side effects.
func New(cfg Config) *Driver {
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	return &Driver{log: cfg.Log, groups: sync.OnceValue(cgroup.Open)}
}

// Name implements driver.Driver.
func (d *Driver) Name() string { return name }

// Probe implements driver.Driver. Starting a process always works.
func (d *Driver) Probe(context.Context) (driver.Caps, error) {
	c := d.groups().Caps()
	caps := driver.Caps{
		Isolation: "none", Rootless: true, MemoryLimit: c.Memory, PidsLimit: c.Pids, CPULimit: c.CPU, Pause: c.Freeze, Files: c.Freeze,
		Volumes: canMountVolumes(), Fits: driver.FilesFit(name),
		Notes: append(c.Notes, "sandboxes are not isolated from the host or from each other"),
	}
	if !c.Kill {
		caps.Notes = append(caps.Notes, "without a cgroup, a process that hides from /proc's tree outlives its sandbox")
	}
	return caps, nil
}

// Create implements driver.Driver. The only template is the host's own files.
func (d *Driver) Create(ctx context.Context, s driver.Spec) (driver.Instance, error) {
	if s.Root != "" {
		return nil, kind.Newf(kind.Invalid, "create sandbox", string(s.ID), "driver direct supports only the host template: %q is not available", s.Template)
	}
	if err := live.CheckVacant(ctx, d, s); err != nil {
		return nil, err
	}
	boot, err := live.BootID()
	if err != nil {
		return nil, kind.Wrap(kind.Internal, "create sandbox", string(s.ID), err)
	}
	limits := cgroup.Limits{MemoryMiB: s.MemoryMiB, CPUMilli: s.CPUMilli, Pids: s.MaxPIDs(driver.MaxProcesses), Apart: s.Cgroup}
	state := live.State{Driver: name, ID: s.ID, Boot: boot}
	state.Cgroups = d.groups().Paths(cgroup.Prefix+string(s.ID), limits)
	proc, err := d.start(ctx, s, &state, limits)
	if err != nil {
		return nil, live.Rollback(ctx, d.log, s.Dir, state, d.sweep, err)
	}
	return d.newInstance(s.Dir, state, proc), nil
}

// start starts the shim. It saves the state before the process exists; after an interruption
// in between, the process is found by its cgroup or its environment.
func (d *Driver) start(ctx context.Context, s driver.Spec, state *live.State, limits cgroup.Limits) (*live.Proc, error) {
	if err := state.Save(s.Dir); err != nil {
		return nil, err
	}
	home := filepath.Join(s.Dir, homeDir)
	if err := makeHome(ctx, home, s.From); err != nil {
		return nil, err
	}
	group, err := d.groups().Make(state.Cgroups, limits)
	if err != nil {
		return nil, err
	}
	null, log, err := live.Streams(s.Dir)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	defer log.Close()
	listener, err := live.Listen(s.Dir)
	if err != nil {
		return nil, err
	}
	defer listener.Close()

	files := []*os.File{null, null, log, listener}
	if s.Cgroup {
		counts, err := group.ForShim()
		if err != nil {
			return nil, err
		}
		defer counts[0].Close()
		defer counts[1].Close()
		files = append(files, counts...)
	}
	attr := &syscall.SysProcAttr{Setsid: true}
	pidfd := live.PidFD(attr)
	var p *os.Process
	err = live.OnThread(home, func() error {
		if err := mountVolumes(s.Volumes); err != nil {
			return err
		}
		return group.Start(attr, func() (err error) {
			p, err = os.StartProcess(s.ShimPath, append([]string{filepath.Base(s.ShimPath)}, s.ShimArgs...), &os.ProcAttr{
				Env: environ(s, home), Sys: attr, Files: files, Dir: home,
			})
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	proc, err := live.Watch(p, *pidfd)
	if err != nil {
		return nil, err
	}
	state.PID = proc.PID
	if state.Start, err = live.StartTime(proc.PID); err != nil {
		return nil, err
	}
	if err := limit(proc.PID, &s); err != nil {
		return nil, err
	}
	return proc, state.Save(s.Dir)
}

// makeHome makes a home directory, with the files of the snapshot from, if
// any.
func makeHome(ctx context.Context, home, from string) error {
	if from == "" {
		return os.Mkdir(home, 0o700)
	}
	err := live.CopyTree(ctx, filepath.Join(from, homeDir), home, live.Copy{})
	if errors.Is(err, fs.ErrNotExist) {
		return kind.New(kind.NotFound, "create sandbox", "", "no snapshot of this driver")
	}
	return err
}

func environ(s driver.Spec, home string) []string {
	all := map[string]string{
		"PATH": os.Getenv("PATH"), "HOME": home, "USER": os.Getenv("USER"), "LOGNAME": os.Getenv("LOGNAME"),
		"SHELL": "/bin/sh", "LANG": "C.UTF-8",
	}
	if _, err := os.Stat("/bin/bash"); err == nil {
		all["SHELL"] = "/bin/bash"
	}
	for k, v := range s.Env {
		all[k] = v
	}
	all[idVariable] = string(s.ID)
	list := make([]string, 0, len(all))
	for k, v := range all {
		list = append(list, k+"="+v)
	}
	return list
}

// Attach implements driver.Driver.
func (d *Driver) Attach(ctx context.Context, s driver.Spec) (driver.Instance, error) {
	return live.Reattach(ctx, s, name, d.sweep, d.newInstance)
}

// List implements driver.Driver.
func (d *Driver) List(_ context.Context, root string) ([]sandbox.ID, error) {
	return live.List(root, name)
}

func (d *Driver) newInstance(dir string, state live.State, proc *live.Proc) *live.Instance {
	group, disk := cgroup.Reopen(state.Cgroups), &usage.Disk{}
	b := &live.Instance{
		State: state, Dir: dir, Proc: proc, Group: group,
		Sweep:   func(ctx context.Context) error { return d.sweep(ctx, dir, state) },
		Measure: func(ctx context.Context) (driver.Stats, error) { return measure(ctx, dir, group, disk, state.PID) },
	}
	if group.CanFreeze() {
		b.Freezer = group
		b.Save = func(ctx context.Context, to string) error {
			return live.CopyTree(ctx, filepath.Join(dir, homeDir), filepath.Join(to, homeDir), live.Copy{})
		}
	}
	b.Kill = func(ctx context.Context) error {
		if err := group.Thaw(ctx); err != nil {
			return err
		}
		// While the shim runs it inherits orphans: its tree is complete.
		if err := killTree(ctx, state.PID, proc.Done()); err != nil {
			return err
		}
		return live.KillFrozen(ctx, proc, b.Freezer)
	}
	return b
}

// measure returns the usage of a sandbox; of the disk, the contents of its home, and
// deleted files that are still open.
func measure(ctx context.Context, dir string, group *cgroup.Group, disk *usage.Disk, pid int) (driver.Stats, error) {
	s, running, err := live.Measure(group, pid)
	if err != nil {
		return s, err
	}
	s.DiskBytes, s.DiskFiles, err = disk.Of(ctx, filepath.Join(dir, homeDir), running.CPU, running.PIDs...)
	return s, err
}

// sweep kills the processes that the shim left and removes what Create made.
func (d *Driver) sweep(ctx context.Context, dir string, state live.State) error {
	group := cgroup.Reopen(state.Cgroups)
	if err := group.Kill(ctx); err != nil {
		return err
	}
	if !group.Holds() {
		var settle time.Duration
		if state.PID == 0 {
			settle = startTimeout
		}
		if err := killMarked(ctx, state.ID, settle); err != nil {
			return err
		}
	}
	if err := group.Remove(ctx); err != nil {
		return err
	}
	if err := os.RemoveAll(bootstrap.SharedDirectory(string(state.ID))); err != nil {
		return err
	}
	return live.Remove(dir, driver.Files()...)
}
