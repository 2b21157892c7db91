//go:build linux

package microvm

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/cgroup"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/live"
	"github.com/millrace/millrace/services/hostd/internal/driver/microvm/vminit"
)

// Create is driver.Driver.Create. It returns when the guest's shim has answered.
func (d *Driver) Create(ctx context.Context, s driver.Spec) (driver.Instance, error) {
	return create(ctx, d, d.groups(), d.cfg.Log, s, d.prepare)
}

// plan is what a driver needs to start a machine and to have it become a sandbox.
type plan struct {
	program   string
	args      []string
	files     []*os.File // its descriptors from firstFd on; closed when it has them
	memoryMiB uint32     // the guest's
	cpus      uint32

	// box is the machine as an instance, and what makes it the sandbox.
	box func(live.State, *live.Proc) (in driver.Instance, base *live.Box, begin func(context.Context) error)
}

// What a program that runs a machine may use besides the guest's memory, and how many
// threads besides the guest's CPUs.
const (
	overheadMiB = 256
	threads     = 128
)

// create is Create of both drivers, whose prepare writes what it needs into s.Dir.
// What that leaves on error is removed.
func create(
	ctx context.Context, d driver.Driver, groups *cgroup.Tree, log *slog.Logger, s driver.Spec,
	prepare func(context.Context, driver.Spec) (*plan, error),
) (driver.Instance, error) {
	if err := live.Vacate(ctx, d, s); err != nil {
		return nil, err
	}
	boot, err := live.BootID()
	if err != nil {
		return nil, kind.Wrap(kind.Internal, "create sandbox", string(s.ID), err)
	}
	state := live.State{Driver: d.Name(), ID: s.ID, Boot: boot, From: s.From}
	in, err := start(ctx, groups, s, &state, prepare)
	if err != nil {
		return nil, live.Undo(ctx, log, s.Dir, state, sweep, err)
	}
	return in, nil
}

// start starts a machine and has it become the sandbox. What it makes it has noted down
// in state before.
func start(
	ctx context.Context, groups *cgroup.Tree, s driver.Spec, state *live.State,
	prepare func(context.Context, driver.Spec) (*plan, error),
) (driver.Instance, error) {
	if err := state.Save(s.Dir); err != nil {
		return nil, err
	}
	p, err := prepare(ctx, s)
	if err != nil {
		return nil, err
	}
	defer closeAll(p.files)
	limits := cgroup.Limits{CPUMilli: s.CPUMilli, MemoryMiB: p.memoryMiB + overheadMiB, Pids: p.cpus + threads}
	state.Cgroups = groups.Paths(cgroup.Prefix+string(s.ID), limits)
	if err := state.Save(s.Dir); err != nil {
		return nil, err
	}
	group, err := groups.Make(state.Cgroups, limits)
	if err != nil {
		return nil, err
	}
	proc, err := launch(s, group, p.program, p.args, p.files...)
	if err != nil {
		return nil, err
	}
	in, box, begin := p.box(*state, proc)
	if err = note(box, state); err == nil {
		living, cancel := until(ctx, box.Done()) // then nobody will answer
		err = begin(living)
		cancel()
	}
	if err != nil {
		err = errors.Join(early(box, err), live.End(context.WithoutCancel(ctx), proc))
		proc.Close()
		return nil, err
	}
	return in, nil
}

// machineBox is a machine as all that is common to both drivers sees it.
func machineBox(dir string, state live.State, proc *live.Proc) *live.Box {
	return &live.Box{
		State: state, Dir: dir, Proc: proc,
		Kill:  func(ctx context.Context) error { return live.End(ctx, proc) },
		Sweep: func(ctx context.Context) error { return sweep(ctx, dir, state) },
		Measure: func(context.Context) (driver.Stats, error) {
			return live.Measure(cgroup.Reopen(state.Cgroups), proc.PID)
		},
	}
}

var errNoFiles = kind.New(kind.Unimplemented, "snapshot sandbox", "", "a machine's files are in its memory: there is no snapshot without that")

// prepare finds the machine that s wants, saved with all its memory or as a guest that
// waits for its spec.
func (d *Driver) prepare(ctx context.Context, s driver.Spec) (*plan, error) {
	k, err := d.kernel()
	if err != nil {
		return nil, kind.Wrap(kind.Unavailable, "create sandbox", string(s.ID), err)
	}
	m := &machine{accel: "kvm", memoryMiB: s.MemoryMiB, cpus: cpus(s), kernel: k.image, console: d.cfg.Console}
	if d.kvm() != nil {
		m.accel = "tcg"
	}
	if m.memoryMiB == 0 {
		m.memoryMiB = defaultMemory
	}
	files := make([]*os.File, ramFd-firstFd+1)
	var spec *vminit.Spec
	if s.From != "" {
		if err := m.load(s.From); err != nil {
			return nil, err
		}
		files[memoryFd-firstFd], err = os.Open(filepath.Join(s.From, memoryFile))
	} else {
		spec, m.ram = guest(s), ramFrom
		if m.image, err = d.images.get(ctx, s.Root); err != nil {
			return nil, err
		}
		var w waiting
		w, err = d.waiting(ctx, *m, &k, s.ShimPath)
		files[memoryFd-firstFd], files[ramFd-firstFd] = w.devices, w.ram
	}
	if err == nil {
		err = errors.Join(d.images.users().Note(filepath.Dir(s.Dir)), m.save(filepath.Join(s.Dir, workDir)))
	}
	for fd, name := range map[int]string{shimFd: socketFile, qmpFd: qmpFile} {
		if err == nil {
			files[fd-firstFd], err = live.ListenAt(s.Dir, name)
		}
	}
	if err != nil {
		closeAll(files)
		return nil, err
	}
	return &plan{
		program: d.cfg.QEMU, args: m.args(), files: files, memoryMiB: m.memoryMiB, cpus: m.cpus,
		box: func(state live.State, proc *live.Proc) (driver.Instance, *live.Box, func(context.Context) error) {
			b := d.box(s.Dir, state, proc)
			return b, b.Box, func(ctx context.Context) error { return b.begin(ctx, spec) }
		},
	}, nil
}

// cpus are those of the guest.
func cpus(s driver.Spec) uint32 { return max((s.CPUMilli+999)/1000, 1) }

// guest is what the machine is to become. The time and the seed are told last.
func guest(s driver.Spec) *vminit.Spec {
	env := map[string]string{
		"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME": "/home/user", "USER": "user", "LOGNAME": "user", "SHELL": "/bin/sh", "LANG": "C.UTF-8",
	}
	for k, v := range s.Env {
		env[k] = v
	}
	list := make([]string, 0, len(env))
	for k, v := range env {
		list = append(list, k+"="+v)
	}
	slices.Sort(list)
	return &vminit.Spec{
		Hostname: string(s.ID), Env: list, DiskMiB: int(s.DiskMiB),
		Sudo: s.Sudo, PIDs: int(s.MaxPIDs(maxProcesses)), Files: uint64(cmp.Or(s.OpenFiles, driver.DefaultOpenFiles)),
		Argv: append(append([]string{"shim"}, s.ShimArgs...), "-serial", "0,1"),
	}
}

const firstFd = 3 // of those that launch hands on

// launch starts a program in the sandbox's directory, with files as its descriptors
// from firstFd on and a log of the sandbox's as its stderr. It is in a session of
// its own and outlives hostd.
func launch(s driver.Spec, group *cgroup.Group, name string, args []string, files ...*os.File) (*live.Proc, error) {
	program, err := exec.LookPath(name)
	if err != nil {
		return nil, err
	}
	null, log, err := live.Streams(s.Dir)
	if err != nil {
		return nil, err
	}
	defer null.Close() //nolint:errcheck // nothing was written
	defer log.Close()  //nolint:errcheck // the program has its own
	attr := &syscall.SysProcAttr{Setsid: true}
	pidfd := live.PidFD(attr)
	var p *os.Process
	err = live.OnThread(s.Dir, func() error {
		return group.Start(attr, func() (err error) {
			p, err = os.StartProcess(program, append([]string{program}, args...), &os.ProcAttr{
				Sys: attr, Files: append([]*os.File{null, null, log}, files...), Env: []string{"PATH=/usr/bin:/bin"},
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
	if err := live.Expendable(p.Pid); err != nil {
		err = errors.Join(err, live.End(context.Background(), proc))
		proc.Close()
		return nil, err
	}
	return proc, nil
}
