//go:build linux

// Package microvm gives each sandbox a machine of its own: QEMU with Debian's cloud
// kernel, a disk that only reads, and one serial port. Between a sandbox and the
// host stand the guest's kernel and QEMU, with no device but those two.
//
// # QEMU
// It is started as package nsinit starts a sandbox of the host's kernel: in namespaces of
// its own, without a capability, behind that filter and its own, and, where hostd is root,
// as a uid of its own. It sees its own program, libraries and firmware, and writes to
// no file but those that it is handed by descriptor. Memory that several guests begin as
// it has as a sealed file. Where that cannot be, nothing is started.
//
// # What is needed
// What package nslaunch needs: user namespaces. The kernel must be a file that all may
// read. qemu-system-x86_64 and mksquashfs (Debian: qemu-system-x86, squashfs-tools); the
// files of a linux-image-*-cloud-amd64 package, unpacked in Config.Kernel or
// installed; busybox-static for the template that needs nothing. The shim must be a
// static binary: it is the guest's first process, before there is any library.
// Probe boots a guest to find out whether KVM truly works, because inside of some
// virtual machines it does not. Without it QEMU translates, 20 to 50 times slower, and
// only if Config.TCG says so.
//
// # Create
// No sandbox waits for a guest to boot but the first of its kind. That one is stopped
// before it has met any sandbox, and kept in Config.Cache: every other is made of its
// memory, which the host has once for all of them, but for the pages that they change.
// It is then told what to become, the time, and random bytes of its own.
//
// # Files
// The root is an image of Spec.Root, made once and kept in Config.Cache: as long as a
// snapshot or a sandbox stands on it, and otherwise if it is one of the eight that were
// used last. A large tree takes longer than who asks for it has time: its image is made
// whoever waits for it, until Close. What is written over it stays in the guest's memory: at
// most Spec.DiskMiB, or half of the memory. Without a Spec.Root it is a busybox: a guest cannot see the host's
// files. A snapshot is of the whole machine, or of what was written: that the guest tells
// itself, with all else in it stopped, and another guest takes (package vminit). The host
// keeps it and does not look into it. A paused guest runs for that moment, sockets are left
// out, and the stream of the shim is begun anew, so that what goes through its ports is cut.
//
// # Limits
// Memory is the guest's; CPU time is that of the guest's CPUs, and of QEMU's cgroup
// where there is one, which also bounds QEMU's memory and threads; the guest's own
// cgroup bounds its processes. What the host measures is QEMU: its memory once touched
// stays with it.
package microvm

import (
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
	defaultCPU    = 1000 // thousandths: a guest has one at least
	maxProcesses  = 4096
	trialTime     = 5 * time.Second
)

// Config tunes a Driver; its zero value works where everything is installed and
// KVM works.
type Config struct {
	QEMU   string        // the program; empty: qemu-system-x86_64
	Kernel string        // a directory with boot/ and lib/modules/; empty: /var/lib/millrace/microvm, else /
	Cache  string        // where images are kept; empty: /var/cache/millrace, or below the user's cache
	Init   func() string // gives a static binary that calls vminit.Init, for Probe's trial; nil, or empty: this program
	TCG    bool          // translate where KVM does not work

	Scratch string // where trials are made; see live.Trial

	// Console has the guest's kernel and first process speak into the sandbox's
	// shim.log. It is for finding out why a guest does not boot: without a limit,
	// who is root in a guest could fill the host's disk through it.
	Console bool
	// Log gets what goes wrong without being an error of a call. Nil: nobody.
	Log *slog.Logger
}

// Driver makes machines; see the package. It may be used by many at a time.
type Driver struct {
	cfg    Config
	groups func() *cgroup.Tree
	kvm    func() error // why there is none
	apart  func() error // why QEMU cannot be in namespaces of its own
	images *images
	ranges bool // each QEMU has a uid of its own
	uids   *nslaunch.UIDs
	shims  nslaunch.Shims
	views  views
	seals  seals
}

var (
	_ driver.Driver    = (*Driver)(nil)
	_ driver.Preparing = (*Driver)(nil)
	_ io.Closer        = (*Driver)(nil)
)

// New is a Driver. It does nothing yet.
func New(cfg Config) *Driver {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.QEMU == "" {
		cfg.QEMU = "qemu-system-x86_64"
	}
	d := &Driver{cfg: cfg, groups: sync.OnceValue(cgroup.Open), images: newImages(cacheDir(cfg.Cache)), ranges: nslaunch.HasRanges(), uids: nslaunch.ForMachines()}
	d.kvm, d.apart = sync.OnceValue(d.tryKVM), sync.OnceValue(d.tryApart)
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

// Name is driver.Driver.Name.
func (d *Driver) Name() string { return name }

// Probe is driver.Driver.Probe.
func (d *Driver) Probe(context.Context) (driver.Caps, error) {
	groups := d.groups().Caps()
	caps := driver.Caps{
		Isolation: "machine", Rootless: true, MemoryLimit: true, PidsLimit: true, CPULimit: groups.CPU,
		Pause: true, Files: true, Memory: true, FileFits: driver.FilesFit(name), CPUMilli: defaultCPU, MemoryMiB: defaultMemory,
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
	if err := d.apart(); err != nil {
		return caps, kind.Wrap(kind.Unavailable, "probe", name, fmt.Errorf("run QEMU apart from the host: %w", nslaunch.Explain(err)))
	}
	if err := d.kvm(); err != nil {
		if !d.cfg.TCG {
			return caps, kind.Newf(kind.Unavailable, "probe", name, "no KVM: %s; translation by QEMU is slow and must be asked for", err)
		}
		caps.Notes = append(caps.Notes, "QEMU translates, without KVM: "+err.Error())
	}
	return caps, nil
}

// tryApart comes as far as to where QEMU would be executed.
func (d *Driver) tryApart() error {
	s, done, err := live.Trial(d.cfg.Scratch)
	if err != nil {
		return err
	}
	defer done()
	ctx, cancel := context.WithTimeout(context.Background(), trialTime)
	defer cancel()
	q := &qemu{dir: s.Dir, shim: d.init(), m: &machine{accel: "tcg"}, mortal: true, trial: true}
	return d.attend(ctx, q, func(context.Context) error { return nil })
}

// tryKVM boots a guest that switches itself off.
func (d *Driver) tryKVM() error {
	f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	f.Close() //nolint:errcheck // nothing was written
	s, done, err := live.Trial(d.cfg.Scratch)
	if err != nil {
		return err
	}
	defer done()
	k, err := d.kernel()
	if err != nil {
		return err
	}
	if err := k.writeInitrd(filepath.Join(s.Dir, initrdFile), d.init(), vminit.Boot{Trial: true}); err != nil {
		return fmt.Errorf("it was not tried: %w", err)
	}
	q := &qemu{dir: s.Dir, shim: d.init(), m: &machine{accel: "kvm", memoryMiB: defaultMemory, cpus: 1, boots: true}, mortal: true}
	defer q.files.close()
	initrd, err := os.Open(filepath.Join(s.Dir, initrdFile))
	if err := errors.Join(q.files.take(initrdFd, initrd, err), q.files.open(q.m, &k), q.files.listen(s.Dir)); err != nil {
		return fmt.Errorf("it was not tried: %w", err)
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
		return errors.New("/dev/kvm is there, but a guest did not boot within " + trialTime.String())
	case err == nil:
		return nil
	}
	if first, _, _ := strings.Cut(driver.Said(s.Dir), "\n"); first != "" {
		return fmt.Errorf("%.200s", first)
	}
	return err
}

// Close ends what goes on after the calls that began it: images of trees.
func (d *Driver) Close() error {
	d.images.close()
	return nil
}

// Attach is driver.Driver.Attach.
func (d *Driver) Attach(ctx context.Context, s driver.Spec) (driver.Instance, error) {
	return live.Reattach(ctx, s, name, d.sweep, d.box)
}

// List is driver.Driver.List.
func (d *Driver) List(_ context.Context, root string) ([]sandbox.ID, error) {
	return live.List(root, name)
}

// sweep removes what is left of a sandbox whose machine may live only if it was cut
// off while it was started.
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

// sweep is that of both drivers, and gives the uids back.
func (d *Driver) sweep(ctx context.Context, dir string, state live.State) error {
	if err := sweep(ctx, dir, state); err != nil {
		return err
	}
	d.uids.Free(state.UIDBase)
	return nil
}

// note notes down the process of a machine.
func note(dir string, state *live.State, proc *live.Proc) (err error) {
	state.PID = proc.PID
	if state.Start, err = live.StartTime(state.PID); err != nil {
		return err
	}
	return state.Save(dir)
}

// early is what to say of a machine that did not become a sandbox.
func early(b *live.Box, err error) error {
	if errors.Is(err, vminit.ErrRefused) { // it has said why
		return err
	}
	select {
	case <-b.Done():
		err = kind.New(kind.Unavailable, "boot", "", "the machine ended early")
	default:
	}
	if said := driver.Said(b.Dir); said != "" {
		return fmt.Errorf("%w: %q", err, said)
	}
	return err
}

// until is ctx, and ends with done too.
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
