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

// host is one life of a host.
type host struct {
	cfg       Config
	log       *events.Log
	slog      *slog.Logger
	view      *events.View
	shim      atomic.Pointer[[]string] // program and arguments of the next sandbox's shim
	unproven  bool                     // what the drivers can do is only remembered
	journal   *journal
	cursor    *cursor
	epoch     uint64
	pool      link.Pool
	gate      fair.Gate
	templates *templates.Cache
	spare     *pool
	builds    chan struct{}  // has a value for each place that is being made
	lists     chan struct{}  // and for each volume of which many files are being listed
	renew     chan struct{}  // has a value when the lease says what is not so any more
	wg        sync.WaitGroup // boxes, processes and what else works on its own

	life context.Context         // of all that works on its own; set once, by Run
	die  context.CancelCauseFunc // ends it at once

	draining  atomic.Bool // it takes no new sandbox
	recovered atomic.Bool // nor does it until what the life before left is seen to
	ended     atomic.Bool // a sandbox that began from a snapshot has ended

	opened  chan struct{} // closed when there are drivers
	settled chan struct{} // and when none is to come any more
	proven  []offer       // what the next life is told of the drivers; of this one's beginning, then of prove's goroutine

	mu      sync.Mutex
	boxes   map[sandbox.ID]*box
	drivers []offer                         // the first is the default
	claimed uint64                          // bytes of the disk, by snapshots that are being made
	parked  map[sandbox.ID][]events.Command // for sandboxes that are not adopted yet; nil: all are
	stdin   int                             // bytes of input in parked

	egress    *egress.Server // nil: no sandbox may use the network; then the next two are, too
	authority *egress.Authority
	sealer    *sandbox.Sealer
	ring      *identity.Ring
	origin    sync.Mutex          // held while a snapshot's directory is looked for, or given away
	system    string              // what the host's own files are
	cpu       string              // what its CPU can
	near      atomic.Bool         // the disk has not much room
	short     atomic.Bool         // it has little
	ousted    map[sandbox.ID]bool // ended for the disk before there was a lease
	veth      *veth.Net           // nil: no sandbox has an interface of its own
}

// LeaveTimeout bounds a clean end: what a run still stores, and the end of the
// sandboxes with Config.DestroyOnExit.
const (
	LeaveTimeout   = 20 * time.Second
	destroyTimeout = 15 * time.Second // of that, for the end of the sandboxes
)

// Run is a life of a host. It ends when ctx does, and leaves the sandboxes to
// the next life unless Config.DestroyOnExit. An error of kind.Fenced says that a
// newer life has begun or that this one was declared dead: what it knew is void,
// and a caller that still wants the host calls Run again.
func Run(ctx context.Context, cfg Config) error {
	if err := setDefaults(&cfg); err != nil {
		return err
	}
	defer cfg.made.close() //nolint:errcheck // what was cut off is made anew by the next life
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
	if len(waiting) == 0 { // else they are attended to first
		if err := h.openDrivers(ctx); err != nil {
			return err
		}
	}
	closeEgress, err := h.openEgress()
	if err != nil {
		return err
	}
	defer closeEgress() // it ends after what uses it
	defer h.openVeth(ctx)()
	drain, err := j.draining()
	if err != nil {
		return err
	}
	h.draining.Store(drain)
	// A life ends with an error of its own, or after a clean end has been made.
	life, die := context.WithCancelCause(context.WithoutCancel(ctx))
	h.life, h.die = life, die
	defer h.wg.Wait()
	defer die(nil)
	return h.live(ctx)
}

// live runs a life; clean is done when it is to end by itself.
func (h *host) live(clean context.Context) error {
	life := h.life
	work, stop := context.WithCancel(life)
	defer stop()
	defer context.AfterFunc(clean, stop)() // also whoever stops us while we wait for NATS
	if err := h.makeRoom(work); err != nil {
		return err
	}
	opened := h.openView() // neither waits for the other
	lease, err := h.takeLease(work)
	if err != nil {
		h.die(err) // nobody needs a view then
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
	h.slog.Info("host lives", "host", h.cfg.Name, "epoch", h.epoch, "sandboxes", sandboxes)

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
	g.Go(func() error { // what dies apart from these takes them with it
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

// openView opens the view, or takes over the one that is given, and tells when it is there.
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

// takeOver adopts the sandboxes of the previous run and removes what is left of others,
// while the lease is kept: the log may be long, and much may be left. Commands are read in
// g as soon as it is known which sandboxes are adopted.
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
		rev = 0 // the journal is of another log, whose commands are not these
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
	if h.offers() == nil { // who waits for his output does not wait for them
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

// leave makes a clean end.
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
	if h.egress != nil { // what only this run has counted
		h.tellUse(ctx, (*box).use)
	}
	lease.leave(ctx)
	return err
}

// fault is a place at which tests cut the host off.
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

// spawn runs f on its own until it ends; f must end soon after the life does.
// Only an end of this life is reported, and only by whoever made it.
func (h *host) spawn(what string, f func() error) {
	h.wg.Go(func() {
		if err := f(); err != nil && !errors.Is(err, context.Canceled) && !kind.Is(err, kind.Unavailable) {
			h.slog.Error(what, "err", err)
		}
	})
}

// counts are the sandboxes and processes of the moment.
func (h *host) counts() (sandboxes, processes uint32) {
	for _, b := range h.all() {
		sandboxes++
		processes += uint32(b.count())
	}
	return sandboxes, processes
}

// all are the boxes of the moment. Who looks into one does so without mu: a box that is
// held may want it.
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

// offer is a driver that this host offers, and what it can do here.
type offer struct {
	driver.Driver
	caps driver.Caps
}

// offer gives a driver by its name; empty is the default.
func (h *host) offer(name string) (offer, bool) {
	for _, d := range h.offers() {
		if name == "" || d.Name() == name {
			return d, true
		}
	}
	return offer{}, false
}
