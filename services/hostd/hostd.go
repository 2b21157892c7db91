package hostd

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/identity"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/egress"
	"github.com/millrace/millrace/services/hostd/internal/fair"
	"github.com/millrace/millrace/services/hostd/internal/link"
	"github.com/millrace/millrace/services/hostd/internal/templates"
	"github.com/millrace/millrace/services/hostd/internal/veth"
)

// host is one run of a host.
type host struct {
	cfg       Config
	log       *events.Log
	slog      *slog.Logger
	view      *events.View
	shim      atomic.Pointer[[]string] // program and arguments of the next sandbox's shim
	unproven  bool                     // the drivers' capabilities come from the journal and are unverified
	journal   *journal
	cursor    *cursor
	epoch     uint64
	pool      link.Pool
	gate      fair.Gate
	templates *templates.Cache
	spare     *pool
	builds    chan struct{}  // has a value for each instance that is being created
	lists     chan struct{}  // has a value for each volume listing of many files
	renew     chan struct{}  // has a value when the lease is out of date
	wg        sync.WaitGroup // sandboxes, processes and other background work

	life context.Context         // of all background work; set once, by Run
	die  context.CancelCauseFunc // ends runCtx at once

	draining  atomic.Bool // it accepts no new sandbox
	recovered atomic.Bool // the remains of the previous run are processed; it accepts no sandbox before
	ended     atomic.Bool // a sandbox based on a snapshot has ended

	opened  chan struct{} // closed when the drivers are open
	settled chan struct{} // closed when no further driver will be added
	proven  []offer       // the verified drivers, for the next run; of startup, then of prove's goroutine

	mu      sync.Mutex
	boxes   map[sandbox.ID]*box
	drivers []offer                         // the first is the default
	claimed uint64                          // bytes of disk reserved for snapshots that are being made
	parked  map[sandbox.ID][]events.Command // for sandboxes that are not adopted yet; nil: all are
	stdin   int                             // bytes of input in parked

	egress    *egress.Server // nil: no sandbox may use the network; then the next two are nil, too
	authority *egress.Authority
	sealer    *sandbox.Sealer
	ring      *identity.Ring
	origin    sync.Mutex          // held while a snapshot's directory is resolved or handed out
	system    string              // identifies the host's own files
	cpu       string              // the CPU's features
	near      atomic.Bool         // the disk is close to short
	short     atomic.Bool         // the disk is short of space
	ousted    map[sandbox.ID]bool // evicted before there was a lease
	veth      *veth.Net           // nil: no sandbox has a network interface of its own
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
	defer cfg.made.close() //nolint:errcheck // the next run creates again what was interrupted
	j, err := openJournal(cfg.DataDir, cfg.Slog)
	if err != nil {
		return err
	}
	defer j.close() //nolint:errcheck // every write was committed
	trees, err := openTemplates(&cfg)
	if err != nil {
		return err
	}
	h := &host{
		cfg: cfg, log: cfg.Log, slog: cfg.Slog, journal: j, templates: trees,
		boxes: make(map[sandbox.ID]*box), renew: make(chan struct{}, 1), opened: make(chan struct{}), settled: make(chan struct{}), spare: newPool(max(cfg.Warm, 0)), system: system(), cpu: cpu(),
		builds: make(chan struct{}, buildsPerCPU*runtime.GOMAXPROCS(0)), lists: make(chan struct{}, listsAtOnce),
	}
	if err := h.findShim(); err != nil {
		return err
	}
	h.clearTrials(ctx)
	waiting, err := j.sandboxes()
	if err != nil {
		return err
	}
	if len(waiting) == 0 { // else the sandboxes are adopted first
		if err := h.openDrivers(ctx); err != nil {
			return err
		}
	}
	closeEgress, err := h.openEgress()
	if err != nil {
		return err
	}
	defer closeEgress() // after its users have ended
	defer h.openVeth(ctx)()
	drain, err := j.draining()
	if err != nil {
		return err
	}
	h.draining.Store(drain)
	// A run ends with an error of its own, or after a clean exit.
	life, die := context.WithCancelCause(context.WithoutCancel(ctx))
	h.life, h.die = life, die
	defer h.wg.Wait()
	defer die(nil)
	return h.live(ctx)
}

// serve runs the host until clean is done, and then exits cleanly.
func (h *host) live(clean context.Context) error {
	life := h.life
	work, stop := context.WithCancel(life)
	defer stop()
	defer context.AfterFunc(clean, stop)() // also when the stop comes while NATS is unavailable
	if err := h.makeRoom(work); err != nil {
		return err
	}
	opened := h.openView() // neither waits for the other
	lease, err := h.takeLease(work)
	if err != nil {
		h.die(err) // the view is not needed then
		return errors.Join(err, <-opened)
	}
	h.epoch = lease.Epoch
	g, work := errgroup.WithContext(work)
	g.Go(func() error { return lease.keep(work) })
	if err := h.takeOver(work, g, lease, opened); err != nil {
		stop()
		return cmp.Or(g.Wait(), err)
	}
	sandboxes, _ := h.counts()
	h.slog.Info("host started", "host", h.cfg.Name, "epoch", h.epoch, "sandboxes", sandboxes)

	g.Go(func() error { return h.watch(work) })
	g.Go(func() error { return h.note(work) })
	g.Go(func() error { return h.measure(work) })
	g.Go(func() error { return h.share(work) })
	g.Go(func() error { return h.evict(work) })
	g.Go(func() error { return h.prefetch(work) })
	g.Go(func() error { return h.tunnels(work) })
	g.Go(func() error { return h.meter(work) })
	g.Go(func() error { return h.volumes(work) })
	g.Go(func() error { return h.store(work) })
	g.Go(func() error { h.fill(work); return nil })
	g.Go(func() error { return h.settle(work) })
	g.Go(func() error { return h.audit(work) })
	g.Go(func() error { return h.buildShim(work) })
	g.Go(func() error { // a failure outside of g ends the goroutines in g, too
		select {
		case <-life.Done():
			return context.Cause(life)
		case <-work.Done():
			return nil
		}
	})
	if err := g.Wait(); err != nil {
		h.die(err)
		return err
	}
	return h.leave(lease)
}

// openView opens the view, or uses the one in the config, and reports when it is there.
func (h *host) openView() <-chan error {
	opened := make(chan error, 1)
	go func() {
		var err error
		if h.view = h.cfg.View; h.view == nil {
			h.view, err = h.log.OpenView(h.life)
		}
		opened <- err
	}()
	return opened
}

// takeOver adopts the sandboxes of the previous run and removes the remains of others, while the
// lease is kept: the log may be long, and there may be much to remove. Commands are read in g as
// soon as it is known which sandboxes are adopted.
func (h *host) takeOver(ctx context.Context, g *errgroup.Group, lease *lease, opened <-chan error) error {
	if err := <-opened; err != nil {
		return err
	}
	if err := h.view.Sync(ctx); err != nil {
		return err
	}
	if err := h.openSealer(ctx); err != nil {
		return err
	}
	rev, err := h.journal.cursor()
	if err != nil {
		return err
	}
	if lease.new {
		rev = 0 // the journal belongs to another log, with other commands
	}
	h.cursor = newCursor(rev)
	noted, err := h.journal.sandboxes()
	if err != nil {
		return err
	}
	if h.drivers == nil {
		h.remember()
	}
	h.parked = make(map[sandbox.ID][]events.Command)
	g.Go(func() error { return h.follow(ctx, rev) })
	if err := h.recover(ctx, noted); err != nil {
		return err
	}
	if h.offers() == nil { // output of adopted sandboxes does not wait for them
		if err := h.openDrivers(ctx); err != nil {
			return err
		}
	}
	h.sweepSnapshots(false)
	if err := h.clear(ctx, noted); err != nil {
		return err
	}
	h.sweepVeth()
	h.recovered.Store(true)
	h.outdated()
	return nil
}

// leave exits cleanly.
func (h *host) leave(lease *lease) error {
	if cause := context.Cause(h.life); cause != nil {
		return cause
	}
	var err error
	if ask := h.cfg.DestroyOnExit; ask != nil && ask() {
		ctx, cancel := context.WithTimeout(h.life, destroyTimeout)
		err = h.destroyAll(ctx)
		cancel()
	}
	ctx, cancel := context.WithTimeout(h.life, LeaveTimeout-destroyTimeout)
	defer cancel()
	if h.egress != nil { // usage that only this run has counted
		h.tellUse(ctx, (*box).use)
	}
	lease.leave(ctx)
	return err
}

// fault is a point at which tests interrupt the host.
func (h *host) fault(point string) error {
	if h.cfg.Fault == nil {
		return nil
	}
	err := h.cfg.Fault(point)
	if err != nil {
		h.die(err)
	}
	return err
}

// spawn runs f in the background; f must end soon after the run does. The end of the run is not
// logged here: its cause is reported by the caller of abort.
func (h *host) spawn(what string, f func() error) {
	h.wg.Go(func() {
		if err := f(); err != nil && !errors.Is(err, context.Canceled) && !kind.Is(err, kind.Unavailable) {
			h.slog.Error(what, "err", err)
		}
	})
}

// counts returns the current number of sandboxes and processes.
func (h *host) counts() (sandboxes, processes uint32) {
	for _, b := range h.all() {
		sandboxes++
		processes += uint32(b.count())
	}
	return sandboxes, processes
}

// all returns the current sandboxes. Callers use them without holding mu: the holder of a
// sandbox's lock may wait for mu.
func (h *host) all() []*box {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Values(h.boxes))
}

func (h *host) box(id sandbox.ID) *box {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.boxes[id]
}

// offer is a driver that this host offers, and its capabilities here.
type offer struct {
	driver.Driver
	caps driver.Caps
}

// offer returns a driver by name; the empty name is the default.
func (h *host) offer(name string) (offer, bool) {
	for _, d := range h.offers() {
		if name == "" || d.Name() == name {
			return d, true
		}
	}
	return offer{}, false
}
