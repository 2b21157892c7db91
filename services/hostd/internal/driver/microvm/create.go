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
	return create(ctx, d, d.groups(), d.cfg.Log, s, d.make)
}

// create is Create of both drivers, whose build makes what state names. What that
// leaves on error is removed.
func create[B driver.Instance](
	ctx context.Context, d driver.Driver, groups *cgroup.Tree, log *slog.Logger, s driver.Spec,
	build func(context.Context, driver.Spec, *live.State, cgroup.Limits) (B, error),
) (driver.Instance, error) {
	if err := live.Vacate(ctx, d, s); err != nil {
		return nil, err
	}
	boot, err := live.BootID()
	if err != nil {
		return nil, kind.Wrap(kind.Internal, "create sandbox", string(s.ID), err)
	}
	limits := cgroup.Limits{CPUMilli: s.CPUMilli}
	state := live.State{Driver: d.Name(), ID: s.ID, Boot: boot, From: s.From}
	state.Cgroups = groups.Paths(cgroup.Prefix+string(s.ID), limits)
	box, err := build(ctx, s, &state, limits)
	if err != nil {
		return nil, live.Undo(ctx, log, s.Dir, state, sweep, err)
	}
	return box, nil
}

func (d *Driver) make(ctx context.Context, s driver.Spec, state *live.State, limits cgroup.Limits) (*box, error) {
	if err := state.Save(s.Dir); err != nil {
		return nil, err
	}
	m, err := d.machine(ctx, s)
	if err != nil {
		return nil, err
	}
	memory, err := openMemory(s.From)
	if err != nil {
		return nil, err
	}
	defer memory.Close() //nolint:errcheck // it was only read from
	group, err := d.groups().Make(state.Cgroups, limits)
	if err != nil {
		return nil, err
	}
	proc, err := d.start(s, m.args(memory != nil), memory, group)
	if err != nil {
		return nil, err
	}
	box := d.box(s.Dir, *state, proc)
	if err := box.begin(ctx, state); err != nil {
		return nil, errors.Join(early(box.Box, err), live.End(context.WithoutCancel(ctx), proc))
	}
	return box, nil
}

// machine is what a sandbox runs on, with all files that it needs.
func (d *Driver) machine(ctx context.Context, s driver.Spec) (*machine, error) {
	k, err := d.kernel()
	if err != nil {
		return nil, kind.Wrap(kind.Unavailable, "create sandbox", string(s.ID), err)
	}
	m := &machine{accel: "kvm", memoryMiB: s.MemoryMiB, cpus: max((s.CPUMilli+999)/1000, 1), console: d.cfg.Console}
	if d.kvm() != nil {
		m.accel = "tcg"
	}
	if m.memoryMiB == 0 {
		m.memoryMiB = defaultMemory
	}
	if s.From != "" {
		if err := m.load(s.From); err != nil {
			return nil, err
		}
	} else if m.image, err = d.images.get(ctx, s.Root); err != nil {
		return nil, err
	}
	work := filepath.Join(s.Dir, workDir)
	if err := os.Mkdir(work, 0o700); err != nil {
		return nil, err
	}
	if err := m.save(work); err != nil {
		return nil, err
	}
	m.kernel, m.initrd = k.image, filepath.Join(workDir, initrdFile)
	return m, k.writeInitrd(filepath.Join(work, initrdFile), s.ShimPath, guest(s))
}

// guest is what the machine is to become.
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
		PIDs: int(s.MaxPIDs(maxProcesses)), Files: uint64(cmp.Or(s.OpenFiles, driver.DefaultOpenFiles)),
		Argv: append(append([]string{"shim"}, s.ShimArgs...), "-serial", "0,1"),
	}
}

// start starts QEMU.
func (d *Driver) start(s driver.Spec, args []string, memory *os.File, group *cgroup.Group) (*live.Proc, error) {
	files := []*os.File{shimFd - firstFd: nil, qmpFd - firstFd: nil}
	for fd, name := range map[int]string{shimFd: socketFile, qmpFd: qmpFile} {
		l, err := live.ListenAt(s.Dir, name)
		if err != nil {
			return nil, err
		}
		defer l.Close() //nolint:errcheck // QEMU has its own
		files[fd-firstFd] = l
	}
	if memory != nil {
		files = append(files, memory)
	}
	return launch(s, group, d.cfg.QEMU, args, files...)
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
	return live.Watch(p, *pidfd)
}
