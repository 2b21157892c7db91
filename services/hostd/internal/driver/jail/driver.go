// Package jail isolates sandboxes with FreeBSD's jails, on ZFS. All sandboxes and
// the host share one kernel, as with package namespace: this is process isolation.
//
// It was written from the manuals and is tested only against recorded command lines:
// it has never run on FreeBSD.
//
// # What a sandbox consists of
// A clone of a template's last snapshot, Pool/tpl/<template>@<snapshot>, as
// Pool/run/<id>; a jail e2b-<id> in it, with a network stack of its own (vnet, in
// FreeBSD's GENERIC kernel since 12) that has only a loopback, which ports
// and egress need; without children, with devfs rule set 4 and secure level 2;
// limits by rctl where the kernel accounts for resources (loader tunable
// kern.racct.enable=1). Spec.Root is not used: a template is a data set here, which
// has FreeBSD's ifconfig(8), limits(1) and env(1).
//
// # The shim
// It runs inside the jail, as the command of
//
//	jexec -l -U root e2b-<id> /usr/bin/limits ... <cmd> <args...>
//
// with its listening socket inherited, so that all that it starts is in the jail.
// On the host's side it would have to walk through a tree that the sandbox writes, as
// the host's root, for each requested file. Since -l drops the environment, <cmd> is
// env(1), which sets the sandbox's. Root of a jail has full control of its shim; hostd
// treats every byte of it as hostile.
//
// # Limitations
// There is no freezer: processes that are stopped one by one can start others
// meanwhile, so that Pause is not supported. A snapshot contains files, as one stream
// of zfs-send(8).
package jail

import (
	"cmp"
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
	rootDir = "jail" // mount point of the clone, in Spec.Dir
)

// Config configures a Driver; its zero value works where there is a pool "millrace".
type Config struct {
	// Pool is the ZFS data set that contains templates (tpl) and sandboxes (run).
	// Empty: millrace.
	Pool string
	// Tools are the paths of programs by name, instead of FreeBSD's
	// (see DefaultTools). One without a slash is looked up on PATH.
	Tools map[string]string
	// Log receives problems that are not returned as errors. Nil: discarded.
	Log *slog.Logger
}

// DefaultTools returns FreeBSD's paths of the programs that the driver runs.
func DefaultTools() map[string]string {
	return map[string]string{
		"jail": "/usr/sbin/jail", "jexec": "/usr/sbin/jexec", "jls": "/usr/sbin/jls",
		"zfs": "/sbin/zfs", "umount": "/sbin/umount", "rctl": "/usr/bin/rctl", "sysctl": "/sbin/sysctl",
	}
}

// Driver creates jails; see the package documentation. It is safe for concurrent use.
type Driver struct {
	pool    string
	tools   tools
	log     *slog.Logger
	limited func() bool // whether rctl works
}

var _ driver.Driver = (*Driver)(nil)

// New returns a Driver. It has no side effects.
func New(cfg Config) *Driver {
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	cfg.Pool = cmp.Or(cfg.Pool, "millrace")
	paths := DefaultTools()
	maps.Copy(paths, cfg.Tools)
	d := &Driver{pool: cfg.Pool, tools: paths, log: cfg.Log}
	d.limited = sync.OnceValue(func() bool {
		out, err := d.tools.run(context.Background(), "sysctl", "-n", "kern.racct.enable")
		return err == nil && out == "1"
	})
	return d
}

// Name implements driver.Driver.
func (d *Driver) Name() string { return name }

// Probe implements driver.Driver: it checks that every program and the pool exist.
func (d *Driver) Probe(ctx context.Context) (driver.Caps, error) {
	caps := driver.Caps{Isolation: "process", Files: true, Notes: []string{
		"there is no freezer: a jail cannot be paused",
		"conversations do not work: no directory of a jail is in memory",
	}}
	if err := d.tools.find(); err != nil {
		return caps, kind.Wrap(kind.Unavailable, "probe", name, err)
	}
	if runtime.GOOS == "freebsd" && os.Geteuid() != 0 {
		return caps, kind.New(kind.Unavailable, "probe", name, "jails require root")
	}
	if out, err := d.tools.run(ctx, "sysctl", "-n", "kern.features.vimage"); err != nil || out != "1" {
		return caps, kind.New(kind.Unavailable, "probe", name, "the kernel has no network stacks for jails (options VIMAGE)")
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

// Attach implements driver.Driver.
func (d *Driver) Attach(ctx context.Context, s driver.Spec) (driver.Instance, error) {
	return live.Reattach(ctx, s, name, d.sweep, d.newInstance)
}

// List implements driver.Driver.
func (d *Driver) List(_ context.Context, root string) ([]sandbox.ID, error) {
	return live.List(root, name)
}

// instance is the Instance of a running sandbox.
type instance struct {
	*live.Instance
	d       *Driver
	dataset string
}

func (d *Driver) newInstance(dir string, state live.State, proc *live.Proc) *instance {
	jid := jailName(state.ID)
	return &instance{d: d, dataset: state.Dataset, Instance: &live.Instance{
		State: state, Dir: dir, Proc: proc,
		Kill: func(ctx context.Context) error {
			if err := d.removeJail(ctx, jid); err != nil {
				return err
			}
			return live.Kill(ctx, proc)
		},
		Sweep:   func(ctx context.Context) error { return d.sweep(ctx, dir, state) },
		Measure: func(ctx context.Context) (driver.Stats, error) { return d.measure(ctx, &state) },
	}}
}

func jailName(id sandbox.ID) string { return "e2b-" + string(id) }
