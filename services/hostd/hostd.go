package hostd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/fleet"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/seal"
	"github.com/millrace/millrace/services/hostd/internal/audit"
	"github.com/millrace/millrace/services/hostd/internal/commands"
	"github.com/millrace/millrace/services/hostd/internal/cpushare"
	"github.com/millrace/millrace/services/hostd/internal/disk"
	"github.com/millrace/millrace/services/hostd/internal/drivers"
	"github.com/millrace/millrace/services/hostd/internal/hostmetrics"
	"github.com/millrace/millrace/services/hostd/internal/instances"
	"github.com/millrace/millrace/services/hostd/internal/journal"
	"github.com/millrace/millrace/services/hostd/internal/lease"
	"github.com/millrace/millrace/services/hostd/internal/machine"
	"github.com/millrace/millrace/services/hostd/internal/network"
	"github.com/millrace/millrace/services/hostd/internal/prefetch"
	"github.com/millrace/millrace/services/hostd/internal/sandboxes"
	"github.com/millrace/millrace/services/hostd/internal/session"
	"github.com/millrace/millrace/services/hostd/internal/snapshots"
	"github.com/millrace/millrace/services/hostd/internal/templates"
	"github.com/millrace/millrace/services/hostd/internal/volumes"
	"github.com/millrace/millrace/services/hostd/internal/warmpool"
)

// host is one run of a host.
type host struct {
	cfg       Config
	log       *events.Log
	slog      *slog.Logger
	view      *catalog.View
	journal   *journal.Journal
	epoch     uint64
	traits    traits
	shim      *instances.Shim
	cache     *templates.Cache // of templates, and of copies of snapshots
	leases    *lease.Holder
	drivers   *drivers.Registry
	instances *instances.Store
	warm      *warmpool.Pool
	disk      *disk.Guard
	network   *network.Network
	volumes   *volumes.Store // from the time at which the view is open, as the next ones
	snapshots *snapshots.Store
	templates *prefetch.Fetcher
	commands  *commands.Reader
	sessions  *session.Host
	audits    *audit.Auditor
	sandboxes *sandboxes.Set
	wg        sync.WaitGroup // sandboxes, processes and other background work

	runCtx context.Context         // of all background work; set once, by Run
	abort  context.CancelCauseFunc // ends runCtx at once
}

// traits are what snapshots may depend on.
type traits struct {
	system string // identifies the host's own files
	cpu    string // the CPU's features
}

// LeaveTimeout bounds a clean exit: the last writes, and the end of the sandboxes with
// Config.DestroyOnExit.
const (
	LeaveTimeout   = 20 * time.Second
	destroyTimeout = 15 * time.Second // the part of LeaveTimeout for the end of the sandboxes
)

// Run runs a host until ctx ends and leaves the sandboxes to the next run unless
// Config.DestroyOnExit. An error of kind.Fenced says that a newer run has begun or that this one
// was declared dead: its state is void, and a caller that still wants the host calls Run again.
func Run(ctx context.Context, cfg Config) error {
	if err := setDefaults(&cfg); err != nil {
		return err
	}
	j, err := journal.Open(cfg.DataDir, cfg.Slog)
	if err != nil {
		return err
	}
	defer j.Close()
	trees, err := openTemplates(&cfg)
	if err != nil {
		return err
	}
	h := &host{cfg: cfg, log: cfg.Log, slog: cfg.Slog, journal: j}
	h.cache, h.traits = trees, traits{machine.System(), machine.CPU()}
	h.assemble()
	defer h.drivers.Close()
	if err := h.shim.Find(); err != nil {
		return err
	}
	h.instances.ClearTrials(ctx)
	stored, err := j.Sandboxes()
	if err != nil {
		return err
	}
	if len(stored) == 0 { // else the sandboxes are adopted first
		if err := h.drivers.Open(ctx); err != nil {
			return err
		}
	}
	closeProxy, err := h.network.OpenProxy()
	if err != nil {
		return err
	}
	defer closeProxy() // after its users have ended
	defer h.network.OpenVeth(ctx)()
	drain, err := j.Draining()
	if err != nil {
		return err
	}
	h.setDraining(drain)
	// A run ends with an error of its own, or after a clean exit.
	runCtx, abort := context.WithCancelCause(context.WithoutCancel(ctx))
	h.runCtx, h.abort = runCtx, abort
	defer h.wg.Wait()
	defer abort(nil)
	return h.serve(ctx)
}

// assemble makes the parts of the host from its configuration, journal and templates.
func (h *host) assemble() {
	h.sandboxes = sandboxes.New()
	h.shim = instances.NewShim(h.cfg.Shim, shimRole, h.slog)
	h.disk, h.drivers, h.network = h.newDisk(), h.newDrivers(), h.newNetwork()
	h.leases = h.newLeases()
	h.instances = h.newInstances()
	h.warm = h.newWarm()
	h.cfg.metrics.Use(hostmetrics.Source{Path: h.cfg.DataDir, Capacity: h.cfg.Capacity, Warm: max(h.cfg.Warm, 0), Counts: h.sandboxes.Counts, Pool: h.warm.Stats})
}

// useView makes the parts of the host that need its view and its epoch. rev is the last command
// that need not be read again, ring opens what is sealed, and checkpoint is that of the previous run.
func (h *host) useView(rev uint64, ring *seal.Ring, checkpoint fleet.Checkpoint) {
	h.network.UseView(h.view)
	h.volumes, h.snapshots = h.newVolumes(), h.newSnapshots()
	h.templates = h.newTemplates()
	h.commands = commands.New(commands.Config{
		Host: h.cfg.Name, Log: h.log, Store: h.journal.SetCursor, Fault: h.fault, Slog: h.slog,
	}, rev)
	h.sessions, h.audits = h.newSessions(ring), h.newAudits(checkpoint)
	h.sandboxes.Use(h.sandboxConfig(ring))
}

// serve runs the host until clean is done, and then exits cleanly.
func (h *host) serve(clean context.Context) error {
	runCtx := h.runCtx
	work, stop := context.WithCancel(runCtx)
	defer stop()
	defer context.AfterFunc(clean, stop)() // also when the stop comes while NATS is unavailable
	if err := h.instances.EvictBeforeLease(work); err != nil {
		return err
	}
	opened := h.openView() // neither waits for the other
	held, err := h.leases.Take(work)
	if err != nil {
		h.abort(err) // the view is not needed then
		return errors.Join(err, <-opened)
	}
	h.epoch = held.Epoch
	g, work := errgroup.WithContext(work)
	g.Go(func() error { return held.Keep(work) })
	if err := h.takeOver(work, g, held, opened); err != nil {
		stop()
		return cmp.Or(g.Wait(), err)
	}
	count, _ := h.sandboxes.Counts()
	h.cfg.Ops.Ready("hostd", h.log.Healthy)
	h.slog.Info("host started", "host", h.cfg.Name, "epoch", h.epoch, "sandboxes", count)

	g.Go(func() error { return h.sandboxes.Run(work) })
	g.Go(func() error { return h.commands.StoreCursor(work, func() bool { return runCtx.Err() == nil }) })
	g.Go(func() error { return h.sandboxes.Measure(work) })
	g.Go(func() error { return cpushare.Run(work, h.sandboxes.CPUMembers, h.slog) })
	g.Go(func() error { return h.disk.Run(work) })
	g.Go(func() error { return h.templates.Run(work) })
	g.Go(func() error { return h.newPorts().Run(work, runCtx) })
	g.Go(func() error { return h.network.Run(work) })
	g.Go(func() error { return h.volumes.Run(work) })
	g.Go(func() error { return h.snapshots.Run(work) })
	g.Go(func() error { h.warm.Run(work, h.runCtx); return nil })
	g.Go(func() error { return h.drivers.Settle(work) })
	g.Go(func() error { return h.audits.Run(work) })
	g.Go(func() error { return h.shim.Build(work) })
	g.Go(func() error { // a failure outside of g ends the goroutines in g, too
		select {
		case <-runCtx.Done():
			return context.Cause(runCtx)
		case <-work.Done():
			return nil
		}
	})
	if err := g.Wait(); err != nil {
		h.abort(err)
		return err
	}
	return h.leave(held)
}

// openView opens the view, or uses the one in the config, and reports when it is there.
func (h *host) openView() <-chan error {
	opened := make(chan error, 1)
	go func() {
		var err error
		if h.view = h.cfg.View; h.view == nil {
			h.view, err = h.log.OpenView(h.runCtx)
		}
		opened <- err
	}()
	return opened
}

// takeOver adopts the sandboxes of the previous run and removes the remains of others, while the
// lease is kept: the log may be long, and there may be much to remove. Commands are read in g as
// soon as it is known which sandboxes are adopted.
func (h *host) takeOver(ctx context.Context, g *errgroup.Group, held *lease.Lease, opened <-chan error) error {
	if err := <-opened; err != nil {
		return err
	}
	if err := h.view.Sync(ctx); err != nil {
		return err
	}
	ring, err := h.log.Ring(ctx)
	if err != nil {
		return fmt.Errorf("read keys: %w", err)
	}
	h.network.UseRing(ring)
	rev, err := h.journal.Cursor()
	if err != nil {
		return err
	}
	if held.New {
		rev = 0 // the journal belongs to another log, with other commands
	}
	h.useView(rev, ring, held.Previous)
	stored, err := h.journal.Sandboxes()
	if err != nil {
		return err
	}
	if h.drivers.Offers() == nil {
		h.drivers.Restore()
	}
	g.Go(func() error { return h.commands.Run(ctx, h.dispatch) })
	if err := h.sandboxes.Recover(ctx, stored); err != nil {
		return err
	}
	if h.drivers.Offers() == nil { // output of adopted sandboxes does not wait for them
		if err := h.drivers.Open(ctx); err != nil {
			return err
		}
	}
	h.snapshots.Sweep(false)
	if err := h.instances.Clear(ctx, stored, h.sandboxes.InstancesInUse(), h.sandboxes.Exists); err != nil {
		return err
	}
	h.network.Sweep()
	h.leases.SetRecovered()
	h.leases.Renew()
	return nil
}

// leave exits cleanly.
func (h *host) leave(held *lease.Lease) error {
	if cause := context.Cause(h.runCtx); cause != nil {
		return cause
	}
	var err error
	if ask := h.cfg.DestroyOnExit; ask != nil && ask() {
		ctx, cancel := context.WithTimeout(h.runCtx, destroyTimeout)
		err = h.sandboxes.DestroyAll(ctx)
		cancel()
	}
	ctx, cancel := context.WithTimeout(h.runCtx, LeaveTimeout-destroyTimeout)
	defer cancel()
	h.network.Record(ctx) // what only this run has counted
	held.Leave(ctx)
	return err
}

// fault is a point at which tests interrupt the host.
func (h *host) fault(point string) error {
	if h.cfg.Fault == nil {
		return nil
	}
	err := h.cfg.Fault(point)
	if err != nil {
		h.abort(err)
	}
	return err
}

// spawn runs f in the background; f must end soon after the run does, with which its context ends.
// The end of the run is not logged here: its cause is reported by the caller of abort.
func (h *host) spawn(what string, f func(context.Context) error) {
	h.wg.Go(func() {
		if err := f(h.runCtx); err != nil && !errors.Is(err, context.Canceled) && !kind.Is(err, kind.Unavailable) {
			h.slog.Error(what, "err", err)
		}
	})
}
