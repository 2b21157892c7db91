//go:build linux

// Package namespace isolates sandboxes with Linux namespaces: user, pid, mount,
// net, ipc, uts and cgroup, an own root view, capabilities that reach no
// further than the sandbox, no new privileges, and a system call filter. It
// needs no root, no package and no download; a sandbox is ready in
// milliseconds.
//
// This is process isolation. All sandboxes and the host share one kernel: who
// finds a hole in what the filter allows of it owns the host. For code that
// nobody vouches for choose a driver with a kernel of its own.
//
// # The view
// The template "host", by whichever of its names, is the host's /usr with a
// private layer for changes, a private /etc of which only a short list comes from
// the host and only what all of the host may read, and
// otherwise empty directories on the disk below Spec.Dir. The network is a
// loopback of the sandbox's own.
//
// # With root and without
// As root of the machine each sandbox has a range of uids: a root (uid 0, with a
// few capabilities), `user` (uid 1000), and all others. As an ordinary user the
// sandbox has one uid, 1000, without any capability: a process as root cannot
// be had. In both the home of `user` is /home/user, and /usr/local and its like
// can be written to by root, or by the only user there is.
//
// # Limits
// Memory, processes and CPU are bounded by cgroups v1 or v2 where hostd may make
// them, as Probe tells. Everywhere each user may have at most Spec.PIDs
// processes and threads, and where there is no memory cgroup one process has at
// most MemoryMiB of data. As root of the machine, with loop devices and mkfs.ext4,
// a sandbox with DiskMiB writes to a file system of that size; elsewhere only
// one file is bounded. /dev/shm counts as memory.
package namespace

import (
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

// Config tunes a Driver; its zero value works.
type Config struct {
	// Templates is where prepared templates are kept. All of the host must be
	// able to walk there, and nobody else to write there; they hold no secrets.
	// Empty: /run/millrace/templates for root, and below the user's cache
	// directory for others.
	Templates string
	// Scratch is where trials are made; see live.Trial.
	Scratch string
	// Init is a binary that calls nsinit.Init, with which Probe makes its trial.
	// Empty: this program.
	Init string
	// Log gets what goes wrong without being an error of a call. Nil: nobody.
	Log *slog.Logger
}

// Driver makes sandboxes; see the package. It may be used by many at a time.
type Driver struct {
	cfg    Config
	ranges bool
	uids   *nslaunch.UIDs
	shims  nslaunch.Shims

	diskOnce sync.Once
	diskErr  error // by diskOnce: why the disk of a sandbox cannot be limited

	mu     sync.Mutex
	hosts  map[string]*hostTemplate // by mu; prepared, by the program that is their sudo
	groups *cgroup.Tree             // by mu; nil: not looked for yet
	parent string                   // by mu; the last directory that spread was asked about
	noted  string                   // by mu; the last directory of sandboxes that was noted
}

var _ driver.Driver = (*Driver)(nil)

// New is a Driver. It does nothing yet.
func New(cfg Config) *Driver {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Init == "" {
		cfg.Init = "/proc/self/exe"
	}
	return &Driver{cfg: cfg, ranges: nslaunch.HasRanges(), uids: nslaunch.ForPlaces(), hosts: map[string]*hostTemplate{}}
}

// Name is driver.Driver.Name.
func (d *Driver) Name() string { return name }

// Probe is driver.Driver.Probe. It makes a sandbox up to the point where the
// shim would be executed.
func (d *Driver) Probe(ctx context.Context) (driver.Caps, error) {
	groups := d.cgroups().Caps()
	caps := driver.Caps{
		Isolation: "process", Rootless: true,
		MemoryLimit: groups.Memory, PidsLimit: groups.Pids, CPULimit: groups.CPU, Pause: true,
		Volumes: true, Fits: layers.Fits(), Notes: groups.Notes,
	}
	if err := d.disks(); err != nil {
		caps.Notes = append(caps.Notes, "the disk space of a sandbox is not limited: "+err.Error())
	} else {
		caps.DiskLimit = true
	}
	if !d.ranges {
		caps.Notes = append(caps.Notes, "hostd is not root: a sandbox has one user and no root, and keeps the groups of hostd's user")
	}
	s, done, err := live.Trial(d.cfg.Scratch)
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

// Attach is driver.Driver.Attach.
func (d *Driver) Attach(ctx context.Context, s driver.Spec) (driver.Instance, error) {
	state, proc, err := live.Attach(ctx, s, name, d.sweep)
	if err != nil {
		return nil, err
	}
	d.uids.Mark(state.UIDBase)
	return d.box(s.Dir, state, proc), nil
}

// List is driver.Driver.List.
func (d *Driver) List(_ context.Context, root string) ([]sandbox.ID, error) {
	return live.List(root, name)
}

// box is the Instance of a living sandbox. Its pid 1 takes all others with it:
// the kernel lets it end only when they have ended.
func (d *Driver) box(dir string, state live.State, proc *live.Proc) *live.Box {
	group, disk := cgroup.Reopen(state.Cgroups), &usage.Disk{}
	b := &live.Box{
		State: state, Dir: dir, Proc: proc, Group: group, Net: true,
		Brake:   signals{dir, state.PID},
		Sweep:   func(ctx context.Context) error { return d.sweep(ctx, dir, state) },
		Measure: func(ctx context.Context) (driver.Stats, error) { return measure(ctx, dir, group, disk, state) },
	}
	if group.CanFreeze() {
		b.Brake = group
	}
	b.Save = func(ctx context.Context, to string) error { return save(ctx, dir, state, to) }
	b.Kill = func(ctx context.Context) error { return live.EndStopped(ctx, proc, b.Brake) }
	return b
}

// measure is what a sandbox uses.
func measure(ctx context.Context, dir string, group *cgroup.Group, disk *usage.Disk, state live.State) (driver.Stats, error) {
	s, running, err := live.Measure(group, state.PID)
	if err != nil {
		return s, err
	}
	if state.Disk != "" {
		// The root of the sandbox tells of the disk that its changes are on.
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

// sweep removes what is left of a sandbox without processes. Its mounts went
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

// spread asks ext4 to put each directory made in parent into another part of the
// disk than its neighbours, as it does by itself at the top of a file system.
// Where thousands of files come and go, a place for a new one is looked for
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
		unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, flags|topDir) //nolint:errcheck // another file system: no harm
	}
}

// template finds the template of a sandbox that is to be made and prepares it if need
// be. A trial ends before its copy of /etc could be removed.
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
	if root := filepath.Dir(s.Dir); err == nil && d.noted != root && !trial {
		if err = roots(dir).Note(root); err == nil {
			d.noted = root
		}
	}
	return host, kind.Wrap(kind.Unavailable, "create sandbox", "", err)
}

// templatesDir is where templates are kept.
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
