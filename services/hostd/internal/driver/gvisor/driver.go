//go:build linux

// Package gvisor isolates sandboxes with gVisor: a kernel of its own for each, in
// user space, that is itself in namespaces, without rights and behind a system
// call filter. Who breaks out needs a hole in gVisor and then one in the host's
// kernel. It needs no root, no package and no download but its program,
// millrace-runsc, which is built from a Go module (the directory runsc).
//
// # The place
// The root is the host's /usr, as far as everybody may read it, and a private /etc, as
// with driver "namespace", or Spec.Root; what is written goes to one file below Spec.Dir,
// which is at most DiskMiB large. Inside there are all users, root among them, also where
// hostd is an ordinary user. There is no network but a loopback. The shim is pid 1, as
// root, and talks through two FIFOs (package serial): one connection at a time.
//
// # Pause and snapshots
// GVisor itself stops the tasks of a sandbox that is paused. A snapshot with memory
// is gVisor's checkpoint and holds everything, files included: from one snapshot any
// number of places can begin, each as if it had always been there. It fits the build of
// millrace-runsc and the CPU's features that it was made with. One without memory is
// what package layers says: any build can use it, and driver "namespace". What gVisor
// does not tell of its files, it does not have: sockets, fractions of a second of the
// time of a change, and attributes that are empty, no UTF-8, or have a "=" in their
// names.
//
// # Limits
// Memory and CPU are bounded by cgroups where hostd may make them, disk and
// processes by gVisor; a cgroup bounds the threads that it makes on the host for
// those, and ends the sandbox where there are far too many. The
// memory is that of gVisor and all it runs: when it is used up, the whole sandbox
// ends. Root inside can kill pid 1, which Linux would not let it, and so end its own
// sandbox. A system call costs several times what it does on the host's kernel.
package gvisor

import (
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

// Config tunes a Driver.
type Config struct {
	// Runsc finds millrace-runsc. Its error says why there is none yet, or at all.
	Runsc func() (string, error)
	// Templates is namespace.Config.Templates.
	Templates string
	// Scratch is where trials are made; see live.Trial.
	Scratch string
	// Log gets what goes wrong without being an error of a call. Nil: nobody.
	Log *slog.Logger
}

// Driver makes sandboxes; see the package. It may be used by many at a time.
type Driver struct {
	cfg    Config
	host   *namespace.Driver // knows what of the host may be seen
	groups func() *cgroup.Tree

	bare atomic.Pointer[string] // why root in a place sees more of the host's files than others; nil: he does not

	reading sync.Mutex // held while files of snapshots are read that their owner may not read
}

// New is a Driver. It does nothing yet.
func New(cfg Config) *Driver {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Driver{
		cfg:    cfg,
		host:   namespace.New(namespace.Config{Templates: cfg.Templates, Log: cfg.Log}),
		groups: sync.OnceValue(cgroup.Open),
	}
}

// Name is driver.Driver.Name.
func (d *Driver) Name() string { return name }

// Probe is driver.Driver.Probe. It makes a sandbox and ends it.
func (d *Driver) Probe(ctx context.Context) (driver.Caps, error) {
	groups := d.groups().Caps()
	caps := driver.Caps{
		Isolation: "kernel", Rootless: true,
		MemoryLimit: groups.Memory, WholeOOM: true, RootEnds: true, PidsLimit: true, CPULimit: groups.CPU,
		Slow: true, Pause: true, Files: true, Memory: true, Volumes: os.Geteuid() == 0, FileFits: layers.Fits(),
		Notes: append(slices.DeleteFunc(groups.Notes, itself), "what files hold is bounded together by the limit of the disk, their number by the memory only"),
	}
	if !caps.Volumes {
		caps.Notes = append(caps.Notes, "no volumes: without root none but root inside could write to them")
	}
	if path, err := d.cfg.Runsc(); err == nil {
		caps.Fits = fits(path)
	}
	s, done, err := live.Trial(d.cfg.Scratch)
	if err != nil {
		return caps, kind.Wrap(kind.Unavailable, "probe", name, err)
	}
	defer done()
	s.ShimPath, s.ShimArgs = "/proc/self/exe", []string{"-probe"}
	box, err := d.create(ctx, s)
	if why := d.bare.Load(); why != nil {
		caps.Notes = append(caps.Notes, "root inside reads what of the host's own files only root may read: "+*why)
	}
	if errors.Is(err, live.ErrGone) { // it has been, and took the argument for nonsense
		return caps, nil
	}
	if err != nil {
		return caps, kind.Wrap(kind.Unavailable, "probe", name, explain(err))
	}
	return caps, kind.Wrap(kind.Unavailable, "probe", name, box.Destroy(ctx))
}

// itself reports whether a note is of what the host's cgroups cannot do and gVisor can.
func itself(note string) bool {
	return strings.HasPrefix(note, "no pids limit:") || strings.HasPrefix(note, "no pause:")
}

// Attach is driver.Driver.Attach.
func (d *Driver) Attach(ctx context.Context, s driver.Spec) (driver.Instance, error) {
	return live.Reattach(ctx, s, name, d.sweep, d.box)
}

// List is driver.Driver.List.
func (d *Driver) List(_ context.Context, root string) ([]sandbox.ID, error) {
	return live.List(root, name)
}

// explain adds what a host's owner can do about it.
func explain(err error) error {
	if errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("%w (the kernel refuses user namespaces here: look at user.max_user_namespaces, "+
			"kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns, or the container that hostd runs in)", err)
	}
	return err
}
