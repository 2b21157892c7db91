//go:build linux

// Package namespace isolates sandboxes with Linux namespaces: user, pid, mount,
// net, ipc, uts and cgroup, a root file system of their own, capabilities that are valid
// only in the sandbox, no new privileges, and a system call filter. It
// needs no root, no package and no download; a sandbox is ready in
// milliseconds.
//
// This is process isolation. All sandboxes and the host share one kernel: an exploit
// of a system call that the filter allows controls the host. For untrusted code
// use a driver with a kernel of its own.
//
// # The root file system
// The template "host", by any of its names, consists of the host's /usr with a
// private layer for changes, and a private /etc. That has copies of a short list of
// files, if all users of the host may read them. Everything else is an empty directory
// on the disk below Spec.Dir. The network is a loopback of the sandbox's own.
//
// # With root and without
// If hostd is root of the machine, each sandbox has a range of uids: a root (uid 0, with a
// few capabilities), `user` (uid 1000), and all others. If hostd is an ordinary user, the
// sandbox has one uid, 1000, without any capability: processes cannot run as
// root. In both cases the home of `user` is /home/user, and /usr/local and similar
// directories are writable for root, or for the only user.
//
// # Limits
// Memory, processes and CPU are limited by cgroups v1 or v2 where hostd may create
// them, as Probe reports. In any case each user may have at most Spec.PIDs
// processes and threads, and where there is no memory cgroup each process has at
// most MemoryMiB of data. If hostd is root of the machine, with loop devices and
// mkfs.ext4, a sandbox with DiskMiB writes to a file system of that size; otherwise
// only the size of each file is limited. /dev/shm counts as memory.
package namespace

import (
	"cmp"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/template"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/cgroup"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/layers"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/live"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/nslaunch"
	"github.com/millrace/millrace/services/hostd/internal/driver/usage"
)

const name = "namespace"

// Config configures a Driver; its zero value works.
type Config struct {
	// Templates is the directory of prepared templates. All users of the host must be
	// able to enter it, and only hostd to write there; templates contain no secrets.
	// Empty: /run/millrace/templates for root, and below the user's cache
	// directory for others.
	Templates string
	// Scratch is the directory for probes; see live.ProbeSpec.
	Scratch string
	// Init is a binary that calls nsinit.Init, which Probe uses for its trial.
	// Empty: this program.
	Init string
	// Log receives problems that are not returned as errors. Nil: discarded.
	Log *slog.Logger
}

// Driver creates sandboxes; see the package documentation. It is safe for concurrent use.
type Driver struct {
	cfg    Config
	ranges bool
	uids   *nslaunch.UIDs
	shims  nslaunch.Shims

	diskOnce sync.Once
	diskErr  error // set by diskOnce: why the disk of a sandbox cannot be limited

	mu           sync.Mutex
	hosts        map[string]*hostTemplate // guarded by mu; prepared templates, by the program that is their sudo
	groups       *cgroup.Tree             // guarded by mu; nil: not opened yet
	parent       string                   // guarded by mu; the last argument of spread
	recordedRoot string                   // guarded by mu; the last directory of sandboxes that was recorded
}

var _ driver.Driver = (*Driver)(nil)

// New returns a Driver. It has no side effects.
func New(cfg Config) *Driver {
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	cfg.Init = cmp.Or(cfg.Init, "/proc/self/exe")
	return &Driver{cfg: cfg, ranges: nslaunch.HasRanges(), uids: nslaunch.ForProcesses(), hosts: map[string]*hostTemplate{}}
}

// Name implements driver.Driver.
func (d *Driver) Name() string { return name }

// Probe implements driver.Driver. It makes a sandbox up to the point where the
// shim would be executed.
func (d *Driver) Probe(ctx context.Context) (driver.Caps, error) {
	groups := d.cgroups().Caps()
	caps := driver.Caps{
		Isolation: "process", Rootless: true,
		MemoryLimit: groups.Memory, PidsLimit: groups.Pids, CPULimit: groups.CPU, Pause: true,
		Volumes: true, Config: true, Fits: layers.Fits(), Notes: groups.Notes,
	}
	if err := d.disks(); err != nil {
		caps.Notes = append(caps.Notes, "the disk space of a sandbox is not limited: "+err.Error())
	} else {
		caps.DiskLimit = true
	}
	if d.ranges {
		caps.WarmMiB = 4
	} else { // and hostd cannot rename an instance
		caps.Notes = append(caps.Notes, "hostd is not root: a sandbox has one user and no root, and keeps the groups of hostd's user")
	}
	s, done, err := live.ProbeSpec(d.cfg.Scratch)
	if err != nil {
		return caps, kind.Wrap(kind.Unavailable, "probe", name, err)
	}
	defer done()
	s.ShimPath = d.cfg.Init
	if err := d.trial(ctx, s); err != nil {
		return caps, kind.Wrap(kind.Unavailable, "probe", name, nslaunch.Explain(err))
	}
	s.From = filepath.Join(s.Dir, "from")
	if err := layers.Empty(ctx, s.From); err != nil {
		return caps, kind.Wrap(kind.Unavailable, "probe", name, err)
	}
	if err = d.trial(ctx, s); err != nil {
		caps.Notes = append(caps.Notes, "no snapshots: "+err.Error())
	}
	caps.Files = err == nil
	return caps, nil
}

// Attach implements driver.Driver.
func (d *Driver) Attach(ctx context.Context, s driver.Spec) (driver.Instance, error) {
	state, proc, err := live.Attach(ctx, s, name, d.sweep)
	if err != nil {
		return nil, err
	}
	d.uids.Mark(state.UIDBase)
	return d.newInstance(s.Dir, state, proc), nil
}

// List implements driver.Driver.
func (d *Driver) List(_ context.Context, root string) ([]sandbox.ID, error) {
	return live.List(root, name)
}

// newInstance returns the Instance of a running sandbox. The end of its pid 1 ends all other
// processes: the kernel lets it end only when they have ended.
func (d *Driver) newInstance(dir string, state live.State, proc *live.Proc) *live.Instance {
	group, disk := cgroup.Reopen(state.Cgroups), &usage.Disk{}
	b := &live.Instance{
		State: state, Dir: dir, Proc: proc, Group: group, Net: true,
		Freezer: signals{dir, state.PID},
		Sweep:   func(ctx context.Context) error { return d.sweep(ctx, dir, state) },
		Measure: func(ctx context.Context) (driver.Stats, error) { return measure(ctx, dir, group, disk, state) },
	}
	if group.CanFreeze() {
		b.Freezer = group
	}
	if d.ranges {
		b.SetName = func(hostname string) error { return rename(state.PID, hostname) }
	}
	b.Save = func(ctx context.Context, to string) error { return save(ctx, dir, state, to) }
	b.Kill = func(ctx context.Context) error { return live.KillFrozen(ctx, proc, b.Freezer) }
	return b
}

// measure returns the resource usage of a sandbox.
func measure(ctx context.Context, dir string, group *cgroup.Group, disk *usage.Disk, state live.State) (driver.Stats, error) {
	s, running, err := live.Measure(group, state.PID)
	if err != nil {
		return s, err
	}
	if state.Disk != "" {
		// The sandbox's root reports the disk that its changes are on.
		var fs unix.Statfs_t
		if err := unix.Statfs(filepath.Join("/proc", strconv.Itoa(state.PID), "root"), &fs); err != nil {
			return s, err
		}
		s.DiskBytes = (fs.Blocks - fs.Bfree) * uint64(fs.Bsize)
		return s, nil
	}
	s.DiskBytes, s.DiskFiles, err = disk.Of(ctx, filepath.Join(dir, workDir), running.CPU, running.PIDs...)
	return s, err
}

// sweep removes the rest of a sandbox without processes. Its mounts ended
// with the last of them.
func (d *Driver) sweep(ctx context.Context, dir string, state live.State) error {
	if err := cgroup.Reopen(state.Cgroups).Remove(ctx); err != nil {
		return err
	}
	if err := live.Remove(dir, driver.Files()...); err != nil {
		return err
	}
	d.uids.Free(state.UIDBase)
	return nil
}

func (d *Driver) cgroups() *cgroup.Tree {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.groups == nil {
		d.groups = cgroup.Open()
	}
	return d.groups
}

// spread makes ext4 put each directory made in parent into another part of the
// disk than its neighbors, as it does by itself at the top of a file system.
// Where thousands of files are created and removed, the kernel searches for a free inode
// among all those that were removed within the last minutes; a sandbox makes
// twenty, and they took 20 ms.
func (d *Driver) spread(parent string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.parent == parent {
		return
	}
	d.parent = parent
	fd, err := unix.Open(parent, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	const topDir = 0x20000 // FS_TOPDIR_FL
	if flags, err := unix.IoctlGetInt(fd, unix.FS_IOC_GETFLAGS); err == nil {
		unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, flags|topDir) //nolint:errcheck // not supported by other file systems
	}
}

// template returns the template of a sandbox to be created, and prepares it if
// necessary. A trial has no template, since it ends before its copy of /etc could be removed.
func (d *Driver) template(s *driver.Spec, trial bool) (*hostTemplate, error) {
	if !template.IsHost(s.Template) {
		return nil, kind.Newf(kind.NotFound, "create sandbox", "", "template %q not found", s.Template)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	dir, err := d.templatesDir()
	program := ""
	if s.Sudo {
		program = s.ShimPath
	}
	host := d.hosts[program]
	if err == nil && host == nil {
		if host, err = newHostTemplate(d.cfg.Log, dir, program); err == nil {
			d.hosts[program] = host
		}
	}
	if root := filepath.Dir(s.Dir); err == nil && d.recordedRoot != root && !trial {
		if err = roots(dir).Add(root); err == nil {
			d.recordedRoot = root
		}
	}
	return host, kind.Wrap(kind.Unavailable, "create sandbox", "", err)
}

func (d *Driver) templatesDir() (string, error) {
	switch {
	case d.cfg.Templates != "":
		return d.cfg.Templates, nil
	case d.ranges:
		return "/run/millrace/templates", nil
	}
	cache, err := os.UserCacheDir()
	return filepath.Join(cache, "millrace", "templates"), err
}
