// Package jail isolates sandboxes with FreeBSD's jails, on ZFS. All sandboxes and
// the host share one kernel, as with package namespace: this is process isolation.
//
// It was written after the manuals and is tested against recorded command lines
// only: it has never run on FreeBSD.
//
// # What a sandbox is
// A clone of a template's last snapshot, Pool/tpl/<template>@<snapshot>, as
// Pool/run/<id>; a jail e2b-<id> in it, with a network stack of its own (vnet, in
// FreeBSD's GENERIC kernel since 12) that has a loopback and nothing else, which ports
// and the way out need; without children, with devfs rule set 4 and secure level 2;
// limits by rctl where the kernel accounts for resources (loader tunable
// kern.racct.enable=1). Spec.Root is not used: a template is a data set here, which
// has FreeBSD's ifconfig(8), limits(1) and env(1).
//
// # The shim
// It runs inside the jail, as the command of
//
//	jexec -l -U root e2b-<id> /usr/bin/limits ... <cmd> <args...>
//
// with its listening socket inherited, and what it starts is its child and so in
// the jail. On the host's side it would have to walk through a tree that the
// sandbox writes, as the host's root, for each file that somebody asks for. Since
// -l drops the environment, <cmd> is env(1), which sets the sandbox's. The root of
// a jail can do to its shim what he likes; hostd takes every byte of it as hostile.
//
// # What it cannot do
// There is no freezer: processes that are stopped one by one can start others
// meanwhile, so that Pause is not offered. A snapshot keeps files, as one stream
// of zfs-send(8).
package jail

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"runtime"
	"sync"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/live"
)

const (
	name    = "jail"
	rootDir = "jail" // in Spec.Dir: where the clone is mounted
)

// Config tunes a Driver; its zero value works where there is a pool "millrace".
type Config struct {
	// Pool is the ZFS data set with templates (tpl) and sandboxes (run) in it.
	// Empty: millrace.
	Pool string
	// Tools are the programs to run instead of those where FreeBSD has them, by
	// name (see DefaultTools). One without a slash is looked for on PATH.
	Tools map[string]string
	// Log gets what goes wrong without being an error of a call. Nil: nobody.
	Log *slog.Logger
}

// DefaultTools are where FreeBSD has the programs that are run.
func DefaultTools() map[string]string {
	return map[string]string{
		"jail": "/usr/sbin/jail", "jexec": "/usr/sbin/jexec", "jls": "/usr/sbin/jls",
		"zfs": "/sbin/zfs", "umount": "/sbin/umount", "rctl": "/usr/bin/rctl", "sysctl": "/sbin/sysctl",
	}
}

// Driver makes jails; see the package. It may be used by many at a time.
type Driver struct {
	pool    string
	tools   tools
	log     *slog.Logger
	limited func() bool // whether rctl works
}

var _ driver.Driver = (*Driver)(nil)

// New is a Driver. It does nothing yet.
func New(cfg Config) *Driver {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Pool == "" {
		cfg.Pool = "millrace"
	}
	paths := DefaultTools()
	maps.Copy(paths, cfg.Tools)
	d := &Driver{pool: cfg.Pool, tools: paths, log: cfg.Log}
	d.limited = sync.OnceValue(func() bool {
		out, err := d.tools.run(context.Background(), "sysctl", "-n", "kern.racct.enable")
		return err == nil && out == "1"
	})
	return d
}

// Name is driver.Driver.Name.
func (d *Driver) Name() string { return name }

// Probe is driver.Driver.Probe: every program is there, and so is the pool.
func (d *Driver) Probe(ctx context.Context) (driver.Caps, error) {
	caps := driver.Caps{Isolation: "process", Files: true, Notes: []string{
		"there is no freezer: a jail cannot be paused",
	}}
	if err := d.tools.find(); err != nil {
		return caps, kind.Wrap(kind.Unavailable, "probe", name, err)
	}
	if runtime.GOOS == "freebsd" && os.Geteuid() != 0 {
		return caps, kind.New(kind.Unavailable, "probe", name, "only root makes jails")
	}
	if out, err := d.tools.run(ctx, "sysctl", "-n", "kern.features.vimage"); err != nil || out != "1" {
		return caps, kind.New(kind.Unavailable, "probe", name, "the kernel gives jails no network stack of their own (options VIMAGE)")
	}
	for _, set := range []string{d.pool + "/tpl", d.pool + "/run"} {
		if _, err := d.tools.run(ctx, "zfs", "list", "-H", "-o", "name", set); err != nil {
			return caps, kind.Wrap(kind.Unavailable, "probe", name, err)
		}
	}
	if d.limited() {
		caps.MemoryLimit, caps.PidsLimit, caps.CPULimit = true, true, true
	} else {
		caps.Notes = append(caps.Notes, "sandboxes have no limits: set kern.racct.enable=1 in /boot/loader.conf")
	}
	return caps, nil
}

// Attach is driver.Driver.Attach.
func (d *Driver) Attach(ctx context.Context, s driver.Spec) (driver.Instance, error) {
	return live.Reattach(ctx, s, name, d.sweep, d.box)
}

// List is driver.Driver.List.
func (d *Driver) List(_ context.Context, root string) ([]sandbox.ID, error) {
	return live.List(root, name)
}

// box is the Instance of a living sandbox.
type box struct {
	*live.Box
	d       *Driver
	dataset string
}

func (d *Driver) box(dir string, state live.State, proc *live.Proc) *box {
	jid := jailName(state.ID)
	return &box{d: d, dataset: state.Dataset, Box: &live.Box{
		State: state, Dir: dir, Proc: proc,
		Kill: func(ctx context.Context) error {
			if err := d.removeJail(ctx, jid); err != nil {
				return err
			}
			return live.End(ctx, proc)
		},
		Sweep:   func(ctx context.Context) error { return d.sweep(ctx, dir, state) },
		Measure: func(ctx context.Context) (driver.Stats, error) { return d.measure(ctx, &state) },
	}}
}

func jailName(id sandbox.ID) string { return "e2b-" + string(id) }
