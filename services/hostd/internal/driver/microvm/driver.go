//go:build linux

// Package microvm runs each sandbox in a virtual machine of its own: QEMU with Debian's
// cloud kernel, a read-only disk, and one serial port. The boundary between a sandbox and
// the host is the guest's kernel and QEMU, which has no devices but those two.
//
// # QEMU
// QEMU is started as package nsinit starts a sandbox on the host's kernel: in namespaces
// of its own, without capabilities, behind nsinit's system call filter and its own, and,
// where hostd is root, as a uid of its own. It sees its own program, libraries and
// firmware, and can write only to descriptors that it inherits. Memory that several guests
// start from is a sealed file. Where any of that is not possible, nothing is started.
//
// # Requirements
// User namespaces, as for package nslaunch. The kernel must be a file that all users may
// read. qemu-system-x86_64 and mksquashfs (Debian: qemu-system-x86, squashfs-tools); the
// files of a linux-image-*-cloud-amd64 package, unpacked in Config.Kernel or
// installed; busybox-static for the template without a tree. The shim must be a
// static binary: it is the guest's first process, before there is any library.
// Probe boots a guest to find out whether KVM really works, since inside of some
// virtual machines it does not. Without KVM QEMU translates, 20 to 50 times slower, and
// only if Config.TCG is set.
//
// # Create
// Only the first sandbox of its kind waits for a guest to boot. That guest is stopped
// before it is assigned to a sandbox, and kept in Config.Cache: every other one is made
// from its memory, which the host stores once, except for the pages that they change. It
// then receives its spec, the time, and random bytes of its own.
//
// # Files
// The root file system is an image of Spec.Root, made once and kept in Config.Cache: as
// long as a snapshot or a sandbox uses it, and otherwise if it is one of the eight used
// last. The image of a large tree can take longer than its caller waits: the work
// continues without the caller, until Close. What the sandbox writes over it stays in the
// guest's memory: at most Spec.DiskMiB, or half of the memory. Without a Spec.Root the root
// is a busybox: a guest cannot see the host's files. A snapshot is of the whole machine, or
// of the written files: the guest itself sends those, with all other processes in it stopped,
// and another guest unpacks them (package vminit). The host stores them unread. A paused guest
// runs for that moment, sockets are left out, and the shim's stream starts anew, so that
// connections through its ports break.
//
// # Limits
// Memory is the guest's; CPU time is that of the guest's CPUs, and of QEMU's cgroup
// where there is one, which also limits QEMU's memory and threads; the guest's own
// cgroup limits its processes. The host measures QEMU: memory that it has touched once
// remains counted.
package microvm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/cgroup"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/live"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/nslaunch"
	"github.com/millrace/millrace/services/hostd/internal/driver/microvm/vminit"
)

const (
	name          = "microvm"
	workDir       = "vm"
	initrdFile    = "initrd"
	defaultMemory = 512  // MiB
	defaultCPU    = 1000 // thousandths: a guest has at least one CPU
	maxProcesses  = 4096
	trialTime     = 5 * time.Second
)

// Config configures a Driver; its zero value works where everything is installed and
// KVM works.
type Config struct {
	QEMU   string        // program; empty: qemu-system-x86_64
	Kernel string        // directory with boot/ and lib/modules/; empty: /var/lib/millrace/microvm, else /
	Cache  string        // directory of images; empty: /var/cache/millrace, or below the user's cache
	Init   func() string // returns a static binary that calls vminit.Init, for the guest that Probe boots; nil, or empty: this program
	TCG    bool          // translate where KVM does not work

	Scratch string // directory for probes; see live.ProbeSpec

	// Console writes the output of the guest's kernel and first process to the
	// sandbox's shim.log, to find out why a guest does not boot. It has no limit:
	// root in a guest could fill the host's disk through it.
	Console bool
	// Log receives problems that are not returned as errors. Nil: discarded.
	Log *slog.Logger
}

// Driver creates virtual machines; see the package documentation. It is safe for concurrent use.
type Driver struct {
	cfg       Config
	groups    func() *cgroup.Tree
	kvm       func() error // why KVM is not available
	isolation func() error // why QEMU cannot run in namespaces of its own
	images    *images
	ranges    bool // whether each QEMU has a uid of its own
	uids      *nslaunch.UIDs
	shims     nslaunch.Shims
	views     views
	seals     seals
}

var (
	_ driver.Driver   = (*Driver)(nil)
	_ driver.Preparer = (*Driver)(nil)
	_ io.Closer       = (*Driver)(nil)
)

// New returns a Driver. It has no side effects.
func New(cfg Config) *Driver {
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	cfg.QEMU = cmp.Or(cfg.QEMU, "qemu-system-x86_64")
	d := &Driver{cfg: cfg, groups: sync.OnceValue(cgroup.Open), images: newImages(cacheDir(cfg.Cache)), ranges: nslaunch.HasRanges(), uids: nslaunch.ForMachines()}
	d.kvm, d.isolation = sync.OnceValue(d.tryKVM), sync.OnceValue(d.tryIsolation)
	return d
}

func cacheDir(dir string) string {
	if dir != "" {
		return dir
	}
	if os.Geteuid() == 0 {
		return "/var/cache/millrace/microvm"
	}
	if cache, err := os.UserCacheDir(); err == nil {
		return filepath.Join(cache, "millrace", "microvm")
	}
	return filepath.Join(os.TempDir(), "millrace-microvm")
}

// Name implements driver.Driver.
func (d *Driver) Name() string { return name }

// Probe implements driver.Driver.
func (d *Driver) Probe(context.Context) (driver.Caps, error) {
	groups := d.groups().Caps()
	caps := driver.Caps{
		Isolation: "machine", Rootless: true, MemoryLimit: true, PidsLimit: true, CPULimit: groups.CPU,
		Pause: true, Files: true, Memory: true, Config: true, FileFits: driver.FilesFit(name), CPUMilli: defaultCPU, MemoryMiB: defaultMemory,
		Notes: []string{"files are kept in the guest's memory"},
	}
	for _, tool := range []string{d.cfg.QEMU, "mksquashfs"} {
		if _, err := exec.LookPath(tool); err != nil {
			return caps, kind.Newf(kind.Unavailable, "probe", name, "%s; Debian: apt-get install qemu-system-x86 squashfs-tools", err)
		}
	}
	if _, err := d.kernel(); err != nil {
		return caps, kind.Wrap(kind.Unavailable, "probe", name, err)
	}
	if err := d.isolation(); err != nil {
		return caps, kind.Wrap(kind.Unavailable, "probe", name, fmt.Errorf("isolate QEMU: %w", nslaunch.Explain(err)))
	}
	if err := d.kvm(); err != nil {
		if !d.cfg.TCG {
			return caps, kind.Newf(kind.Unavailable, "probe", name, "no KVM: %s; translation by QEMU is slow and must be enabled", err)
		}
		caps.Notes = append(caps.Notes, "QEMU translates without KVM: "+err.Error())
	}
	return caps, nil
}

// tryIsolation starts a QEMU up to the point where its program would be executed.
func (d *Driver) tryIsolation() error {
	s, done, err := live.ProbeSpec(d.cfg.Scratch)
	if err != nil {
		return err
	}
	defer done()
	ctx, cancel := context.WithTimeout(context.Background(), trialTime)
	defer cancel()
	q := &qemu{dir: s.Dir, shim: d.init(), m: &machine{accel: "tcg"}, diesWithParent: true, trial: true}
	return d.attend(ctx, q, func(context.Context) error { return nil })
}

// tryKVM boots a guest that switches itself off.
func (d *Driver) tryKVM() error {
	f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	f.Close()
	s, done, err := live.ProbeSpec(d.cfg.Scratch)
	if err != nil {
		return err
	}
	defer done()
	k, err := d.kernel()
	if err != nil {
		return err
	}
	if err := k.writeInitrd(filepath.Join(s.Dir, initrdFile), d.init(), vminit.Boot{Trial: true}); err != nil {
		return fmt.Errorf("KVM not tested: %w", err)
	}
	q := &qemu{dir: s.Dir, shim: d.init(), m: &machine{accel: "kvm", memoryMiB: defaultMemory, cpus: 1, boots: true}, diesWithParent: true}
	defer q.files.close()
	initrd, err := os.Open(filepath.Join(s.Dir, initrdFile))
	if err := errors.Join(q.files.take(initrdFd, initrd, err), q.files.open(q.m, &k), q.files.listen(s.Dir)); err != nil {
		return fmt.Errorf("KVM not tested: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), trialTime)
	defer cancel()
	err = d.attend(ctx, q, func(ctx context.Context) error {
		monitor, err := openQMP(ctx, s.Dir)
		if err != nil {
			return err
		}
		defer monitor.close()
		return monitor.awaitShutdown()
	})
	switch {
	case ctx.Err() != nil:
		return errors.New("/dev/kvm exists, but a guest did not boot within " + trialTime.String())
	case err == nil:
		return nil
	}
	if first, _, _ := strings.Cut(driver.ShimLog(s.Dir), "\n"); first != "" {
		return fmt.Errorf("%.200s", first)
	}
	return err
}

// Close ends background work: images of trees that are still being made.
func (d *Driver) Close() error {
	d.images.close()
	return nil
}

// Attach implements driver.Driver.
func (d *Driver) Attach(ctx context.Context, s driver.Spec) (driver.Instance, error) {
	return live.Reattach(ctx, s, name, d.sweep, d.newInstance)
}

// List implements driver.Driver.
func (d *Driver) List(_ context.Context, root string) ([]sandbox.ID, error) {
	return live.List(root, name)
}

// sweep removes the rest of a sandbox. Its machine can only be running if its start
// was interrupted.
func sweep(ctx context.Context, dir string, state live.State) error {
	group := cgroup.Reopen(state.Cgroups)
	if err := group.Kill(ctx); err != nil {
		return err
	}
	if err := group.Remove(ctx); err != nil {
		return err
	}
	return live.Remove(dir, driver.Files()...)
}

// sweep is the function sweep, and releases the uids.
func (d *Driver) sweep(ctx context.Context, dir string, state live.State) error {
	if err := sweep(ctx, dir, state); err != nil {
		return err
	}
	d.uids.Free(state.UIDBase)
	return nil
}

// record records the process of a machine in the state.
func record(dir string, state *live.State, proc *live.Proc) (err error) {
	state.PID = proc.PID
	if state.Start, err = live.StartTime(state.PID); err != nil {
		return err
	}
	return state.Save(dir)
}

// earlyEnd returns the error of a machine that ended before it was ready.
func earlyEnd(b *live.Instance, err error) error {
	if errors.Is(err, vminit.ErrRefused) { // the error has the cause
		return err
	}
	select {
	case <-b.Done():
		err = kind.New(kind.Unavailable, "boot", "", "the machine ended early")
	default:
	}
	if logged := driver.ShimLog(b.Dir); logged != "" {
		return fmt.Errorf("%w: %q", err, logged)
	}
	return err
}

// until returns a context that ends with ctx or when done is closed.
func until(ctx context.Context, done <-chan struct{}) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-done:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

func (d *Driver) init() string {
	if d.cfg.Init != nil {
		if path := d.cfg.Init(); path != "" {
			return path
		}
	}
	return "/proc/self/exe"
}
