//go:build linux

package namespace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/cgroup"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/live"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/nslaunch"
	"github.com/millrace/millrace/services/hostd/internal/driver/namespace/nsinit"
)

const (
	workDir = "ns" // directory in Spec.Dir for what the sandbox writes

	createTimeout = 30 * time.Second // for a host under load; on an idle one it takes 5 ms
	defaultShmMiB = 64
	minDataMiB    = 512 // Go and JavaScript programs do not start with less
)

// Create implements driver.Driver.
func (d *Driver) Create(ctx context.Context, s driver.Spec) (driver.Instance, error) {
	inst, err := d.create(ctx, s, false)
	if err != nil {
		return nil, err
	}
	return inst, nil
}

// trial creates a sandbox whose pid 1 ends where it would execute the shim.
func (d *Driver) trial(ctx context.Context, s driver.Spec) error {
	inst, err := d.create(ctx, s, true)
	if err != nil {
		return err
	}
	return inst.Destroy(ctx)
}

// create records each thing in the state before it makes it, so that Attach finds
// everything that an interrupted create leaves.
func (d *Driver) create(ctx context.Context, s driver.Spec, trial bool) (*live.Instance, error) {
	ctx, cancel := context.WithTimeout(ctx, createTimeout)
	defer cancel()
	spec, err := d.initSpec(&s, trial)
	if err != nil {
		return nil, err
	}
	if err := live.CheckVacant(ctx, d, s); err != nil {
		return nil, err
	}
	d.spread(filepath.Dir(s.Dir))
	state := live.State{Driver: name, ID: s.ID, From: s.From, Etc: spec.EtcLower, Tree: s.Root != ""}
	if state.Boot, err = live.BootID(); err != nil {
		return nil, kind.Wrap(kind.Internal, "create sandbox", string(s.ID), err)
	}
	limits := cgroup.Limits{MemoryMiB: s.MemoryMiB, CPUMilli: s.CPUMilli, Pids: s.MaxPIDs(driver.MaxProcesses), Apart: s.Cgroup}
	state.Cgroups = d.cgroups().Paths(cgroup.Prefix+string(s.ID), limits)
	if d.ranges {
		if state.UIDBase, err = d.uids.Take(s.ID); err != nil {
			return nil, err
		}
	}
	inst, err := d.make(ctx, s, state, limits, spec)
	if err != nil {
		return nil, live.Rollback(ctx, d.cfg.Log, s.Dir, state, d.sweep, err)
	}
	return inst, nil
}

// make makes the parts that state names. On error, sweep removes the remaining ones, and no
// process remains.
func (d *Driver) make(ctx context.Context, s driver.Spec, state live.State, limits cgroup.Limits, spec nsinit.Spec) (*live.Instance, error) {
	if err := state.Save(s.Dir); err != nil {
		return nil, err
	}
	work := filepath.Join(s.Dir, workDir)
	if err := os.Mkdir(work, 0o700); err != nil {
		return nil, err
	}
	if state.UIDBase != 0 {
		if err := os.Chown(work, int(state.UIDBase), int(state.UIDBase)); err != nil {
			return nil, err
		}
	}
	if _, err := d.cgroups().Make(state.Cgroups, limits); err != nil {
		return nil, fmt.Errorf("create cgroups: %w", err)
	}
	var disk *os.File
	var err error
	if spec.Disk {
		if disk, state.Disk, err = d.newDisk(ctx, s.Dir, s.DiskMiB, state.UIDBase); err != nil {
			return nil, fmt.Errorf("create disk: %w", err)
		}
		defer disk.Close()
	}
	c, err := d.start(s, state, work, disk)
	if err != nil {
		return nil, err
	}
	defer c.close()
	if err := c.run(ctx, s.Dir, &state, spec); err != nil {
		if end := live.Kill(context.WithoutCancel(ctx), c.Proc); end != nil {
			d.cfg.Log.Error("kill partially created sandbox failed", "sandbox", s.ID, "err", end)
		}
		return nil, err
	}
	return d.newInstance(s.Dir, state, c.Proc), nil
}

// run sends a started child its spec and waits until it has executed the shim.
func (c *child) run(ctx context.Context, dir string, state *live.State, spec nsinit.Spec) error {
	var err error
	state.PID = c.Proc.PID
	if state.Start, err = live.StartTime(state.PID); err != nil {
		return err
	}
	if err := state.Save(dir); err != nil {
		return err
	}
	if err := c.mapOwners(); err != nil {
		return fmt.Errorf("map owners of the sandbox's mounts: %w", err)
	}
	err = c.Run(ctx, dir, &spec)
	var inside *nslaunch.InitError
	if errors.As(err, &inside) {
		if text, ok := strings.CutPrefix(inside.Text, nsinit.ShowVolumes+": "); ok {
			return kind.New(kind.Precondition, "create sandbox", filepath.Base(dir), "a volume cannot be mounted there: "+text)
		}
	}
	return err
}

// Limits of a sandbox's user besides processes, descriptors and memory. The kernel
// searches existing timers linearly for each new one.
const (
	maxSignals = 1 << 14   // pending signals, and timers
	maxQueues  = 800 << 10 // bytes of message queues
)

// shared returns limits of what the kernel counts for a user. Where all sandboxes are one
// user, each has a part of what that user may have; see nsinit's share.
func (d *Driver) shared() []nsinit.Limit {
	limits := []nsinit.Limit{{Resource: unix.RLIMIT_SIGPENDING, Max: maxSignals}, {Resource: unix.RLIMIT_MSGQUEUE, Max: maxQueues}}
	for i := range limits {
		var all unix.Rlimit
		if err := unix.Getrlimit(int(limits[i].Resource), &all); err == nil && !d.ranges {
			limits[i].Max = min(limits[i].Max, all.Cur/nsinit.Sharers)
		}
	}
	return limits
}

// initSpec returns the child's spec.
func (d *Driver) initSpec(s *driver.Spec, trial bool) (nsinit.Spec, error) {
	limits := []nsinit.Limit{
		// Not 0: a core_pattern of the host that begins with "|" would still be run, as
		// root of the host and with the memory of the sandbox's process. With 1, which the
		// kernel itself uses to mark such programs, it is not.
		{Resource: unix.RLIMIT_CORE, Max: 1},
		{Resource: unix.RLIMIT_NOFILE, Max: uint64(cmp.Or(s.OpenFiles, driver.DefaultOpenFiles))},
		{Resource: unix.RLIMIT_NPROC, Max: uint64(s.MaxPIDs(driver.MaxProcesses)), Spare: driver.ShimThreads},
		// hostd's user may have higher limits: then its processes could preempt all others.
		{Resource: unix.RLIMIT_RTPRIO}, {Resource: unix.RLIMIT_NICE},
	}
	limits = append(limits, d.shared()...)
	ownDisk := d.limitsDisk(s)
	if s.DiskMiB > 0 && !ownDisk {
		limits = append(limits, nsinit.Limit{Resource: unix.RLIMIT_FSIZE, Max: uint64(s.DiskMiB) << 20})
	}
	if s.MemoryMiB > 0 && !d.cgroups().Caps().Memory {
		limits = append(limits, nsinit.Limit{Resource: unix.RLIMIT_DATA, Max: uint64(max(s.MemoryMiB, minDataMiB)) << 20})
	}
	shm := uint32(defaultShmMiB)
	if s.MemoryMiB > 0 {
		shm = max(1, s.MemoryMiB/2)
	}
	spec := nsinit.Spec{
		Hostname: s.HostName(), HasRoot: d.ranges, ShmMiB: shm, Limits: limits,
		Argv:      append([]string{filepath.Base(s.ShimPath)}, s.ShimArgs...),
		KeepGroup: s.Cgroup, Trial: trial, Disk: ownDisk,
	}
	for _, v := range s.Volumes {
		spec.Volumes = append(spec.Volumes, nsinit.Text{Name: v.Path, Body: v.Source})
	}
	if err := fromSnapshot(s, &spec); err != nil {
		return spec, err
	}
	if s.Root != "" {
		return spec, fromTree(s, &spec)
	}
	t, err := d.template(s, trial)
	if err != nil {
		return spec, err
	}
	spec.Sudo, spec.Binds, spec.Links = s.Sudo, t.binds, t.links
	spec.EtcLower, spec.EtcDirs, spec.UsrDirs = t.etc, t.etcDirs, t.usrDirs
	spec.Files, spec.Env = t.files(s.HostName()), environ(t.shell, s.Env)
	return spec, nil
}
