//go:build linux

package microvm

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/cgroup"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/live"
	"github.com/millrace/millrace/services/hostd/internal/driver/microvm/vminit"
)

// Create implements driver.Driver. It returns when the guest's shim has responded.
func (d *Driver) Create(ctx context.Context, s driver.Spec) (driver.Instance, error) {
	return create(ctx, d, d.groups(), d.cfg.Log, s, d.prepare, d.sweep)
}

// plan is what a driver needs to start a machine and to turn it into a sandbox.
type plan struct {
	uid       uint32 // first uid reserved for its program; 0: none
	memoryMiB uint32 // of the guest
	sharedMiB uint32 // initial memory in shared memory; see seals
	cpus      uint32

	// launch starts the program in a group. Once the process is recorded, run lets it
	// continue; nil: it is already running.
	launch func(context.Context, *cgroup.Group) (proc *live.Proc, run func(context.Context) error, err error)
	// box returns the machine as an instance, and the function that makes it the sandbox.
	instance func(live.State, *live.Proc) (in driver.Instance, base *live.Instance, begin func(context.Context) error)
	// close releases what launch needs.
	close func()
}

// Memory that a program that runs a machine may use besides the guest's, and threads
// besides the guest's CPUs.
const (
	overheadMiB = 256
	threads     = 128
)

// create implements Create for both drivers, whose prepare writes its files into s.Dir.
// sweep removes what prepare leaves on error.
func create(
	ctx context.Context, d driver.Driver, groups *cgroup.Tree, log *slog.Logger, s driver.Spec,
	prepare func(context.Context, driver.Spec) (*plan, error), sweep live.Sweep,
) (driver.Instance, error) {
	if err := live.CheckVacant(ctx, d, s); err != nil {
		return nil, err
	}
	boot, err := live.BootID()
	if err != nil {
		return nil, kind.Wrap(kind.Internal, "create sandbox", string(s.ID), err)
	}
	state := live.State{Driver: d.Name(), ID: s.ID, Boot: boot, From: s.From, Tree: s.Root != ""}
	in, err := start(ctx, groups, s, &state, prepare)
	if err != nil {
		return nil, live.Rollback(ctx, log, s.Dir, state, sweep, err)
	}
	return in, nil
}

// start starts a machine and turns it into the sandbox. It records its results in
// state first.
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
	defer p.close()
	limits := cgroup.Limits{CPUMilli: s.CPUMilli, MemoryMiB: p.memoryMiB + p.sharedMiB + overheadMiB, Pids: p.cpus + threads}
	state.Cgroups, state.UIDBase = groups.Paths(cgroup.Prefix+string(s.ID), limits), p.uid
	if err := state.Save(s.Dir); err != nil {
		return nil, err
	}
	group, err := groups.Make(state.Cgroups, limits)
	if err != nil {
		return nil, err
	}
	proc, run, err := p.launch(ctx, group)
	if err != nil {
		return nil, err
	}
	if err = record(s.Dir, state, proc); err == nil && run != nil {
		err = run(ctx)
	}
	in, inst, begin := p.instance(*state, proc)
	if err == nil {
		living, cancel := until(ctx, inst.Done()) // a machine that has ended does not respond
		err = begin(living)
		cancel()
	}
	if err != nil {
		return nil, errors.Join(earlyEnd(inst, err), live.Kill(context.WithoutCancel(ctx), proc))
	}
	return in, nil
}

// machineInstance returns the part of an instance that both drivers share.
func machineInstance(dir string, state live.State, proc *live.Proc, sweep live.Sweep) *live.Instance {
	group := cgroup.Reopen(state.Cgroups)
	return &live.Instance{
		State: state, Dir: dir, Proc: proc, Group: group,
		Kill:  func(ctx context.Context) error { return live.Kill(ctx, proc) },
		Sweep: func(ctx context.Context) error { return sweep(ctx, dir, state) },
		Measure: func(context.Context) (driver.Stats, error) {
			s, _, err := live.Measure(group, proc.PID)
			return s, err
		},
	}
}

// prepare plans the machine that s describes: one saved with all its memory, or a guest
// that waits for its spec.
func (d *Driver) prepare(ctx context.Context, s driver.Spec) (*plan, error) {
	k, err := d.kernel()
	if err != nil {
		return nil, kind.Wrap(kind.Unavailable, "create sandbox", string(s.ID), err)
	}
	m := &machine{accel: "kvm", memoryMiB: cmp.Or(s.MemoryMiB, defaultMemory), cpus: cpus(s), console: d.cfg.Console}
	if d.kvm() != nil {
		m.accel = "tcg"
	}
	q := &qemu{dir: s.Dir, shim: s.ShimPath, m: m}
	b, err := d.origin(ctx, s, &k, q)
	if err == nil {
		err = errors.Join(d.images.users().Add(filepath.Dir(s.Dir)), m.save(filepath.Join(s.Dir, workDir)))
	}
	if err == nil {
		err = q.files.listen(s.Dir)
	}
	if err == nil {
		q.base, err = d.uid(s.ID)
	}
	if err != nil {
		q.files.close()
		return nil, err
	}
	var shared uint32
	if m.ram == ramFrom {
		shared = m.memoryMiB
	}
	return &plan{
		sharedMiB: shared, uid: q.base, memoryMiB: m.memoryMiB, cpus: m.cpus, close: q.files.close,
		launch: func(ctx context.Context, group *cgroup.Group) (*live.Proc, func(context.Context) error, error) {
			q.group = group
			return d.start(ctx, q)
		},
		instance: func(state live.State, proc *live.Proc) (driver.Instance, *live.Instance, func(context.Context) error) {
			in := d.newInstance(s.Dir, state, proc)
			return in, in.Instance, func(ctx context.Context) error { return in.begin(ctx, b) }
		},
	}, nil
}

// origin describes how a machine becomes a sandbox.
type origin struct {
	spec  *vminit.Spec // sent to its guest; nil: not sent, the machine continues where it was saved
	files string       // file with another guest's files, if spec requests it
}

// Prepare implements driver.Preparer: it makes the template's image.
func (d *Driver) Prepare(ctx context.Context, s *driver.Spec) error {
	if files, err := filesIn(s.From, s.Root != ""); err != nil || s.From != "" && files == "" {
		return live.Failed(s.ID, err) // the machine keeps its image
	}
	_, err := d.images.get(ctx, s.Root)
	return live.Failed(s.ID, err)
}

// origin returns how the machine that s describes starts.
func (d *Driver) origin(ctx context.Context, s driver.Spec, k *kernel, q *qemu) (b origin, err error) {
	files, err := filesIn(s.From, s.Root != "")
	if err != nil {
		return b, err
	}
	if s.From != "" && files == "" {
		if err := q.m.load(s.From); err != nil {
			return b, err
		}
		memory, err := os.Open(filepath.Join(s.From, memoryFile))
		return b, errors.Join(q.files.take(memoryFd, memory, err), q.files.open(q.m, k))
	}
	q.m.ram = ramFrom
	if q.m.image, err = d.images.get(ctx, s.Root); err != nil {
		return b, err
	}
	w, err := d.waiting(ctx, *q.m, k, s.ShimPath)
	if err != nil {
		return b, err
	}
	q.files[memoryFd-shimFd], q.files[ramFd-shimFd] = w.devices, w.ram
	b = origin{spec: guest(s), files: files}
	b.spec.Written = files != ""
	b.spec.Argv = append(b.spec.Argv, vminit.PackFlag, vminit.PackFiles)
	return b, q.files.open(q.m, k)
}

// open opens the files that every machine needs.
func (c *channels) open(m *machine, k *kernel) error {
	kernel, err := os.Open(k.image)
	if err := c.take(kernelFd, kernel, err); err != nil || m.image == "" {
		return err
	}
	image, err := os.Open(m.image)
	return c.take(imageFd, image, err)
}

// listen creates the sockets of a machine.
func (c *channels) listen(dir string) error {
	for fd, name := range map[int]string{shimFd: socketFile, qmpFd: qmpFile} {
		l, err := live.ListenAt(dir, name)
		if err := c.take(fd, l, err); err != nil {
			return err
		}
	}
	return nil
}

// cpus returns the number of CPUs of the guest.
func cpus(s driver.Spec) uint32 { return max((s.CPUMilli+999)/1000, 1) }

// guest returns the spec of the guest. The time and the seed are added last.
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
