//go:build linux

// Package gvisor isolates sandboxes with gVisor: each has a kernel of its own, in
// user space, which itself runs in namespaces, without capabilities and behind a system
// call filter. An escape requires a vulnerability of gVisor and another of the host's kernel. The
// driver needs no root, no package and no download but its program, millrace-runsc,
// which is built from a Go module (the directory runsc).
//
// # Environment
// The root file system is the host's /usr, as far as all users may read it, and a private
// /etc, as with driver "namespace", or Spec.Root; writes go to one file below Spec.Dir,
// of at most DiskMiB. All users exist inside, root included, also where hostd runs as an
// ordinary user. The only network is a loopback. The shim is pid 1, as root, and
// communicates through two FIFOs (package fifolink): one connection at a time.
//
// # Pause and snapshots
// GVisor itself stops the tasks of a paused sandbox. A snapshot with memory is gVisor's
// checkpoint and contains everything, files included: any number of instances can start
// from one snapshot, each as if it had always existed. It requires the build of
// millrace-runsc and the CPU features that it was made with. For a snapshot without
// memory see package layers: any build can use it, and driver "namespace". It lacks what
// gVisor does not report of its files: sockets, fractions of a second of modification
// times, and attributes that are empty, not UTF-8, or have a "=" in their names.
//
// # Limits
// Memory and CPU are limited by cgroups where hostd may create them, disk and
// processes by gVisor; a cgroup limits the threads that gVisor creates on the host for
// those, and the sandbox ends if it exceeds that limit. The memory limit includes
// gVisor and everything in it: when it is used up, the whole sandbox ends. Root inside
// can kill pid 1, which Linux would not permit, and so end its own sandbox. A system
// call costs several times as much as on the host's kernel.
package gvisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/cgroup"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/layers"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/live"
	"github.com/millrace/millrace/services/hostd/internal/driver/namespace"
)

const name = "gvisor"

// Config configures a Driver.
type Config struct {
	// Runsc returns the path of millrace-runsc, or an error with the reason why it does not exist, or not yet.
	Runsc func() (string, error)
	// Templates is the same as namespace.Config.Templates.
	Templates string
	// Scratch is the directory for probes; see live.ProbeSpec.
	Scratch string
	// Log receives problems that are not returned as errors. Nil: discarded.
	Log *slog.Logger
}

// Driver creates sandboxes; see the package documentation. It is safe for concurrent use.
type Driver struct {
	cfg    Config
	host   *namespace.Driver // determines which files of the host are visible
	groups func() *cgroup.Tree

	unveiled atomic.Pointer[string] // reason why root in a sandbox reads more of the host's files than other users; nil: it does not

	reading sync.Mutex // held while files of snapshots are read that their owner may not read
}

// New returns a Driver. It has no side effects.
func New(cfg Config) *Driver {
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	return &Driver{
		cfg:    cfg,
		host:   namespace.New(namespace.Config{Templates: cfg.Templates, Log: cfg.Log}),
		groups: sync.OnceValue(cgroup.Open),
	}
}

// Name implements driver.Driver.
func (d *Driver) Name() string { return name }

// Probe implements driver.Driver. It creates a sandbox and destroys it.
func (d *Driver) Probe(ctx context.Context) (driver.Caps, error) {
	groups := d.groups().Caps()
	caps := driver.Caps{
		Isolation: "kernel", Rootless: true,
		MemoryLimit: groups.Memory, OOMEndsSandbox: true, RootCanKillShim: true, PidsLimit: true, CPULimit: groups.CPU,
		WarmMiB: 16, Pause: true, Files: true, Memory: true, Volumes: os.Geteuid() == 0, Config: true, FileFits: layers.Fits(),
		Notes: append(slices.DeleteFunc(groups.Notes, limitedByGVisor), "the disk limit bounds the total size of files, only the memory limit their number"),
	}
	if !caps.Volumes {
		caps.Notes = append(caps.Notes, "no volumes: without root, only root inside could write to them")
	}
	if path, err := d.cfg.Runsc(); err == nil {
		caps.Fits = fits(path)
	}
	s, done, err := live.ProbeSpec(d.cfg.Scratch)
	if err != nil {
		return caps, kind.Wrap(kind.Unavailable, "probe", name, err)
	}
	defer done()
	s.ShimPath, s.ShimArgs = "/proc/self/exe", []string{"-probe"}
	inst, err := d.create(ctx, s)
	if why := d.unveiled.Load(); why != nil {
		caps.Notes = append(caps.Notes, "root inside can read host files that only root may read:  "+*why)
	}
	if errors.Is(err, live.ErrGone) { // it ran, and rejected the argument
		return caps, nil
	}
	if err != nil {
		return caps, kind.Wrap(kind.Unavailable, "probe", name, explain(err))
	}
	return caps, kind.Wrap(kind.Unavailable, "probe", name, inst.Destroy(ctx))
}

// limitedByGVisor reports whether a note is about something that gVisor can do and the host's cgroups cannot.
func limitedByGVisor(note string) bool {
	return strings.HasPrefix(note, "no pids limit:") || strings.HasPrefix(note, "no pause:")
}

// Attach implements driver.Driver.
func (d *Driver) Attach(ctx context.Context, s driver.Spec) (driver.Instance, error) {
	return live.Reattach(ctx, s, name, d.sweep, d.newInstance)
}

// List implements driver.Driver.
func (d *Driver) List(_ context.Context, root string) ([]sandbox.ID, error) {
	return live.List(root, name)
}

// explain adds what the host's operator can do about err.
func explain(err error) error {
	if errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("%w (the kernel does not permit user namespaces: check user.max_user_namespaces, "+
			"kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns, or the container that hostd runs in)", err)
	}
	return err
}
