package hostd

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"runtime"
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
	renew     chan struct{}  // has a value when the lease says what is not so any more
	wg        sync.WaitGroup // boxes, processes and what else works on its own

	life context.Context         // of all that works on its own; set once, by Run
	die  context.CancelCauseFunc // ends it at once

	draining atomic.Bool // it takes no new sandbox
	ended    atomic.Bool // a sandbox that began from a snapshot has ended

	mu      sync.Mutex
	boxes   map[sandbox.ID]*box
	drivers []offer // the first is the default

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

// leaveTimeout bounds a clean end.
const leaveTimeout = 20 * time.Second

// Run is a life of a host. It ends when ctx does, and leaves the sandboxes to
// the next life unless Config.DestroyOnExit. An error of kind.Fenced says that a
// newer life has begun or that this one was declared dead: what it knew is void,
// and a caller that still wants the host calls Run again.
func Run(ctx context.Context, cfg Config) error {
	if err := setDefaults(&cfg); err != nil {
		return err
	}
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
		boxes: make(map[sandbox.ID]*box), renew: make(chan struct{}, 1), spare: newPool(max(cfg.Warm, 0)), system: system(), cpu: cpu(),
		builds: make(chan struct{}, buildsPerCPU*runtime.GOMAXPROCS(0)),
	}
	if err := h.findShim(); err != nil {
		return err
	}
	if os.Geteuid() == 0 {
		widen("/proc/sys", cfg.Slog)
	}
	h.clearTrials(ctx)
	if err := h.openDrivers(ctx); err != nil {
		return err
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
	start, cancel := context.WithCancel(life)
	defer cancel()
	defer context.AfterFunc(clean, cancel)() // whoever stops us while we wait for NATS
	if err := h.makeRoom(start); err != nil {
		return err
	}
	lease, err := h.look(start)
	if err != nil {
		return err
	}
	h.epoch = lease.Epoch
	if err := h.view.Sync(start); err != nil {
		return err
	}
	if err := h.openSealer(start); err != nil {
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
	if err := h.recover(start); err != nil {
		return err
	}
	h.sweepVeth()
	sandboxes, _ := h.counts()
	h.slog.Info("host lives", "host", h.cfg.Name, "epoch", h.epoch, "sandboxes", sandboxes)

	work, stop := context.WithCancel(life)
	defer stop()
	defer context.AfterFunc(clean, stop)()
	g, work := errgroup.WithContext(work)
	g.Go(func() error { return lease.keep(work) })
	g.Go(func() error { return h.watch(work) })
	g.Go(func() error { return h.follow(work, rev) })
	g.Go(func() error { return h.note(work) })
	g.Go(func() error { return h.measure(work) })
	g.Go(func() error { return h.share(work) })
	g.Go(func() error { return h.evict(work) })
	g.Go(func() error { return h.prefetch(work) })
	g.Go(func() error { return h.tunnels(work) })
	g.Go(func() error { return h.meter(work) })
	g.Go(func() error { return h.volumes(work) })
	g.Go(func() error { return h.store(work) })
	g.Go(func() error { return h.fill(work) })
	g.Go(func() error { return h.prove(work) })
	g.Go(func() error { return h.offerLate(work) })
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

// look opens the view while it takes the lease: neither waits for the other.
func (h *host) look(ctx context.Context) (*lease, error) {
	opened := make(chan error, 1)
	go func() {
		var err error
		if h.view = h.cfg.View; h.view == nil {
			h.view, err = h.log.OpenView(h.life)
		}
		opened <- err
	}()
	lease, err := h.takeLease(ctx)
	if err != nil {
		h.die(err) // nobody needs a view then
	}
	return lease, errors.Join(err, <-opened)
}

// leave makes a clean end.
func (h *host) leave(lease *lease) error {
	if cause := context.Cause(h.life); cause != nil {
		return cause
	}
	ctx, cancel := context.WithTimeout(h.life, leaveTimeout)
	defer cancel()
	var err error
	if ask := h.cfg.DestroyOnExit; ask != nil && ask() {
		err = h.destroyAll(ctx)
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
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, b := range h.boxes {
		sandboxes++
		processes += uint32(b.count())
	}
	return sandboxes, processes
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

// runs is what the record says of a sandbox that was made. Processes that go on from
// a snapshot find no other volumes than those they had: they are not kept.
func (b *box) runs() sandbox.Running {
	d, _ := b.h.offer(b.driver.Name())
	return sandbox.Running{Driver: d.Name(), Isolation: sandbox.Isolation(d.caps.Isolation), Can: sandbox.Abilities{
		Pause: d.caps.Pause, Files: d.caps.Files, Memory: d.caps.Memory && len(b.req.Volumes) == 0,
	}}
}
