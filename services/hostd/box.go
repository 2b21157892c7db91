package hostd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/egress"
	"github.com/millrace/millrace/services/hostd/internal/fair"
	"github.com/millrace/millrace/services/hostd/internal/link"
	"github.com/millrace/millrace/services/hostd/internal/templates"
)

// box is a sandbox of this host, from the moment it is placed until nothing of
// it is left.
type box struct {
	h      *host
	id     sandbox.ID
	driver driver.Driver
	inst   driver.Instance
	tree   *templates.Tree // nil: the host's own files
	from   *templates.Tree // the snapshot that it stands on, as the store had it; nil: none, or this host's own
	req    sandbox.Requested
	tenant string
	by     string          // the driver that is to make it; empty: the host's default
	made   sandbox.Running // how it was made, whatever the host offers now; zero until then
	where  sync.RWMutex    // of place and inst, which a reboot replaces
	place  sandbox.ID      // the name of its place on the host; mostly its own
	phase  sandbox.Phase   // when the box was opened
	found  bool            // it was made in an earlier life
	flow   *fair.Flow      // its part of what is stored
	tips   *tips           // nil: it was made in this life

	ready   chan struct{} // closed when it is known which processes the shim has, or that there is none
	stop    chan struct{} // closed when the sandbox is to end
	drained chan struct{} // closed when, after End, every record has its end
	gone    chan struct{} // closed when the box has ended
	turn    chan struct{} // has a value when the record may ask for a pause or its end

	burner  burner        // of share's goroutine
	asks    atomic.Uint64 // how many commands, input and connections it got from clients
	waiting atomic.Int64  // bytes of commands that wait for its shim to take them; see admit
	looks   chan struct{} // has a value for each process that is looked up
	evicted atomic.Bool   // it is ended because the disk is full

	still bool // of serve's goroutine: the place stands still, as far as we know
	cut   bool // of its goroutine: its shim was not listened to until all was told

	handing sync.WaitGroup // until the journal has whose place it is, or handed says why not
	handed  error
	moving  sync.WaitGroup   // processes that are about to have a record here
	keeping sync.Mutex       // held while a snapshot is made
	order   sync.Mutex       // held while a command is passed on; taken before mu
	passing bool             // it is known which processes the shim has
	early   []events.Command // until then they wait

	mu          sync.Mutex
	conn        *link.Conn // nil: not connected
	greeted     bool       // the shim said which processes it has
	procs       map[string]*proc
	forgotten   map[string]struct{} // processes whose last words are not listened to
	pending     map[uint64]*pending // commands on their way, by rev
	looked      time.Time           // when those were sought that nobody waits for
	strangers   int                 // of procs: of which only the shim had word
	stopping    bool                // stop is closed
	ended       bool                // the shim said that all has ended
	closed      bool                // nothing can be started or sent any more
	told        sandbox.Phase       // what the record said last
	toldSeq     uint64              // where it did
	reboot      bool                // its processes end when it goes on
	goes        bool                // since the last pause it has gone on
	lags        bool                // its place has stood still; see tellTime
	way         *egress.Way         // nil: there is no network
	net         sandbox.Network     // that is in force
	reachable   bool                // net allows anything
	transformed bool                // net transforms requests
	used        sandbox.NetworkUsed // before this life of the host, and by interfaces

	useTold time.Time // when meter last told what was used; it is meter's alone
}

const (
	sandboxDir    = "sandboxes"
	createTimeout = 60 * time.Second
	buildsPerCPU  = 2                // places that are made at a time
	stopTimeout   = 15 * time.Second // until what has not ended by itself is destroyed
)

var (
	errShimGone = errors.New("the sandbox's shim is gone")
	errNoMemory = errors.New("the sandbox used up its memory, and ended of that as a whole")
)

func newBox(h *host, s *sandbox.State) *box {
	b := &box{
		h: h, flow: h.gate.Flow(), id: s.ID, place: s.ID, tenant: s.Tenant, req: s.Request, phase: s.Phase, by: s.Driver,
		made: sandbox.Running{Driver: s.Driver, Isolation: s.Isolation, Can: s.Can}, used: s.Used,
		ready: make(chan struct{}), stop: make(chan struct{}), drained: make(chan struct{}), gone: make(chan struct{}), turn: make(chan struct{}, 1),
		looks: make(chan struct{}, lookAtOnce),
		procs: make(map[string]*proc), forgotten: make(map[string]struct{}), pending: make(map[uint64]*pending),
	}
	b.tell(s)
	return b
}

func (h *host) root() string { return filepath.Join(h.cfg.DataDir, sandboxDir) }

func (h *host) dirOf(id sandbox.ID) string { return filepath.Join(h.root(), string(id)) }

// tell passes on what the sandbox's record says now.
func (b *box) tell(s *sandbox.State) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.Seq < b.toldSeq {
		return // somebody was told a newer one first
	}
	b.reboot = s.Reboot
	if b.toldSeq = s.Seq; b.told != s.Phase {
		if b.told = s.Phase; s.Phase == sandbox.PhasePausing {
			b.goes = false
		}
		b.again()
	}
	b.network(s)
	if (s.Phase == sandbox.PhaseStopping || s.Over()) && !b.stopping {
		b.stopping = true
		close(b.stop)
	}
}

// run is the box's life.
func (b *box) run(ctx context.Context) error {
	defer b.handing.Wait()
	err := b.make(ctx)
	if err == nil {
		err = b.serve(ctx)
	}
	if ctx.Err() != nil {
		b.detach()
		return ctx.Err()
	}
	return b.bury(ctx, err)
}

// make makes the sandbox unless it is there, and says on record that it runs.
func (b *box) make(ctx context.Context) error {
	switch {
	case b.phase == sandbox.PhasePlaced && b.instance() == nil:
		return b.create(ctx)
	case b.instance() == nil:
		return errShimGone
	case b.phase == sandbox.PhasePlaced: // the life before did not come to say so
		return b.choose(ctx)
	}
	return nil
}

func (b *box) create(ctx context.Context) error {
	h := b.h
	if err := h.fault("placed"); err != nil {
		return err
	}
	if err := b.choose(ctx); err != nil {
		return err
	}
	err := b.furnish(ctx)
	if err == nil {
		err = b.fits()
	}
	if err != nil {
		return err
	}
	spec := b.spec()
	if spec.From, err = b.begins(ctx); err != nil {
		return err
	}
	if spec.Volumes, err = h.mounts(&b.req); err != nil {
		return err
	}
	o, offered := h.offer(b.driver.Name())
	if offered {
		if ready, ok := h.warm(&o, spec); ok {
			return b.moveIn(ready)
		}
	}
	if err := prepare(ctx, b.driver, &spec); err != nil {
		return err
	}
	h.spare.begin()
	defer h.spare.end()
	if offered {
		h.keepWarm(&o, spec)
	}
	if err := os.MkdirAll(spec.Dir, 0o700); err != nil {
		return err
	}
	if err := h.journal.setSandbox(b.id, made{driver: b.driver.Name(), trees: treesOf(b.tree, b.from)}); err != nil {
		return err
	}
	if err := h.fault("journaled"); err != nil {
		return err
	}
	inst, err := h.build(ctx, b.driver, spec)
	if err != nil {
		return err
	}
	b.settle(b.id, inst)
	return h.fault("created")
}

// prepare has a driver make what it makes of a template before the first place of it. Who
// waits for that takes nobody's turn, and keeps no place from being made ready.
func prepare(ctx context.Context, d driver.Driver, spec *driver.Spec) error {
	p, ok := d.(driver.Preparing)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, createTimeout)
	defer cancel()
	return p.Prepare(ctx, spec)
}

// build has a driver make a place, and not too many at a time: of a hundred that
// are wanted at once, all would else be made when the last one is.
func (h *host) build(ctx context.Context, d driver.Driver, spec driver.Spec) (driver.Instance, error) {
	select {
	case h.builds <- struct{}{}:
		defer func() { <-h.builds }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, createTimeout)
	defer cancel()
	return d.Create(ctx, spec)
}

// moveIn makes a place that is ready the sandbox's. The journal has that before the record
// says that it runs; a life that ends in between leaves a place that is nobody's.
func (b *box) moveIn(ready warmPlace) error {
	b.settle(ready.id, ready.inst)
	m := made{b.driver.Name(), ready.id, treesOf(b.tree, b.from)}
	b.handing.Go(func() { b.handed = b.h.journal.hand(b.id, m) })
	return b.h.fault("created")
}

// running says on record that processes can be started.
func (b *box) running(ctx context.Context) error {
	if b.phase != sandbox.PhasePlaced {
		return nil
	}
	if b.handing.Wait(); b.handed != nil {
		return b.handed
	}
	s, err := b.h.view.ChangeSandbox(ctx, b.id, func(s sandbox.State) ([]sandbox.Body, error) {
		if s.Phase != sandbox.PhasePlaced {
			return nil, nil
		}
		return []sandbox.Body{b.made}, nil
	})
	if err != nil {
		return err
	}
	b.phase = sandbox.PhaseRunning
	b.tell(&s)
	return b.h.fault("running")
}

// bury ends what is left of the sandbox, all records first, and says so in its
// own. why is what ended it; nil: it was asked to end, and did.
func (b *box) bury(ctx context.Context, why error) error {
	h := b.h
	if err := h.fault("drained"); err != nil {
		return err
	}
	b.shut()
	b.passEarly()             // they are refused
	b.linkUsed(h.linksUsed()) // its interface goes with it
	switch {
	case b.evicted.Load():
		why = errNoDisk
	case errors.Is(why, errShimGone) && b.starved(ctx):
		why = errNoMemory
	}
	said := driver.Said(h.dirOf(b.placeName()))
	if err := b.destroy(ctx); err != nil {
		return err
	}
	if err := os.RemoveAll(h.dirOf(b.placeName())); err != nil {
		return err
	}
	b.tree.Release()
	b.from.Release()
	if err := h.fault("destroyed"); err != nil {
		return err
	}
	if err := b.endAll(ctx, why); err != nil {
		return err
	}
	lost := false
	_, err := h.view.ChangeSandbox(ctx, b.id, func(s sandbox.State) ([]sandbox.Body, error) {
		words := lastWords(&s, why)
		lost = len(words) > 0 && s.Phase != sandbox.PhaseStopping
		return append(b.use(&s), words...), nil
	})
	if err != nil {
		return err
	}
	if lost {
		h.slog.Warn("a sandbox ended that nobody had asked to", "sandbox", b.id, "why", failure(why), "err", why, "shim", said)
	}
	if err := h.fault("buried"); err != nil {
		return err
	}
	b.handing.Wait()
	return h.journal.forgetSandbox(b.id)
}

// lastWords is what a sandbox's record is to end with.
func lastWords(s *sandbox.State, why error) []sandbox.Body {
	switch s.Phase {
	case sandbox.PhasePlaced:
		return []sandbox.Body{sandbox.Failed{Message: failure(why)}}
	case sandbox.PhaseRunning, sandbox.PhasePausing, sandbox.PhasePaused, sandbox.PhaseResuming:
		return []sandbox.Body{sandbox.Lost{Reason: failure(why)}}
	case sandbox.PhaseStopping:
		return []sandbox.Body{sandbox.Destroyed{Cause: s.Cause}}
	}
	return nil
}

// failure is what a client may read of why a sandbox failed.
func failure(err error) string {
	switch {
	case err == nil:
		return "the sandbox ended by itself"
	case errors.Is(err, errShimGone) || errors.Is(err, errNoMemory) || errors.Is(err, errNoDisk) || errors.Is(err, link.ErrHostile):
		return err.Error()
	case errors.Is(err, syscall.ENOSPC):
		return "the disk of the sandbox's host is full"
	}
	return kind.Message(err)
}

// unknownTries is how often it is tried to remove what nobody could attach to: it may
// be that its state cannot be read, and never will.
const unknownTries = 10

// destroy has the driver remove everything, also what a create that failed could not
// remove itself, as on a host under load.
func (b *box) destroy(ctx context.Context) error {
	if b.driver == nil {
		return nil
	}
	wait := 100 * time.Millisecond
	for try := 1; ; try++ {
		err := b.h.remove(ctx, b.driver, b.placeName(), b.instance())
		if err == nil || ctx.Err() != nil {
			return ctx.Err()
		}
		b.h.slog.Error("a sandbox could not be destroyed, trying again", "sandbox", b.id, "err", err)
		if b.instance() == nil && try == unknownTries {
			return nil
		}
		if !rest(ctx, wait) {
			return ctx.Err()
		}
		wait = min(2*wait, 5*time.Second)
	}
}

// starved reports whether the place ended because its memory was used up.
func (b *box) starved(ctx context.Context) bool {
	if b.instance() == nil {
		return false
	}
	o, ok := b.h.offer(b.driver.Name())
	if !ok || !o.caps.WholeOOM {
		return false
	}
	s, err := b.instance().Stats(ctx)
	return err == nil && s.OOMKills > 0
}

// endAll gives the record of every process that is left its end, and waits
// until all are stored. why is what ended the sandbox.
func (b *box) endAll(ctx context.Context, why error) error {
	if err := b.completeAll(ctx); err != nil {
		return err
	}
	lost := process.Exit{Cause: process.CauseShimLost}
	if errors.Is(why, errNoMemory) || errors.Is(why, errNoDisk) {
		lost.Message = why.Error()
	}
	b.mu.Lock()
	if b.stopping {
		lost = process.Exit{Cause: process.CauseSandboxGone}
		if b.cut {
			lost.Message = "the sandbox was removed before its shim had told all"
		}
	}
	procs := make([]*proc, 0, len(b.procs))
	for _, p := range b.procs {
		procs = append(procs, p)
	}
	b.mu.Unlock()
	procs = append(procs, b.orphans()...)
	for _, p := range procs {
		p.lose(lost)
	}
	for _, p := range procs {
		select {
		case <-p.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// detach lets go of a sandbox that goes on without us.
func (b *box) detach() {
	b.mu.Lock()
	conn := b.conn
	b.conn = nil
	b.mu.Unlock()
	if conn != nil {
		conn.Close()
	}
	b.markReady()
}

// wanted is ctx until the sandbox is to end; cancel it in any case.
func (b *box) wanted(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-b.stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// ending reports whether the sandbox is to end.
func (b *box) ending() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stopping
}

func (b *box) markReady() {
	select {
	case <-b.ready:
	default:
		close(b.ready)
	}
}

// count is how many processes have no end on record yet.
func (b *box) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.procs)
}

// remove forgets a process whose record has its end.
func (b *box) remove(p *proc) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.procs[p.id.Token()] == p {
		delete(b.procs, p.id.Token())
		if p.stranger {
			b.strangers--
		}
	}
	b.ifDrained()
}

func (b *box) ifDrained() {
	if !b.ended || len(b.procs) > 0 {
		return
	}
	select {
	case <-b.drained:
	default:
		close(b.drained)
	}
}

// pause waits and reports whether ctx still runs.
func rest(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

func (b *box) hostile(format string, args ...any) error {
	return fmt.Errorf("%w: %s", link.ErrHostile, fmt.Sprintf(format, args...))
}
