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

// hostSandbox is a sandbox on this host, from its placement until its teardown is complete.
type box struct {
	h      *host
	id     sandbox.ID
	driver driver.Driver
	inst   driver.Instance
	tree   *templates.Tree // nil: the host's own files
	from   *templates.Tree // the snapshot that it is based on, from the store; nil: none, or a snapshot of this host
	req    sandbox.Requested
	tenant string
	by     string          // the driver to create it with; empty: the host's default
	made   sandbox.Running // how it was created, whatever the host offers now; zero until then
	where  sync.RWMutex    // guards instID and inst, which a reboot replaces
	place  sandbox.ID      // the name of its instance on the host; mostly its own ID
	phase  sandbox.Phase   // when the sandbox was loaded
	found  bool            // created by a previous run
	flow   *fair.Flow      // its share of the store bandwidth
	tips   *tips           // nil: created by this run

	ready   chan struct{} // closed when the shim's processes are known, or the shim is gone
	stop    chan struct{} // closed when the sandbox must end
	drained chan struct{} // closed when, after End, every record has ended
	gone    chan struct{} // closed when the sandbox has ended
	turn    chan struct{} // has a value when the record may request a pause, a resume or the end

	burner  burner        // of share's goroutine
	asks    atomic.Uint64 // number of commands, input and connections from clients
	waiting atomic.Int64  // bytes of commands that the shim has not accepted yet; see admit
	looks   chan struct{} // has a value for each process lookup in progress
	evicted atomic.Bool   // ended because the disk is full

	still bool // of serve's goroutine: the instance is paused, as far as hostd knows
	cut   bool // of serve's goroutine: the shim was disconnected before it had sent everything

	handing sync.WaitGroup // until the journal has the owner of the instance, or journalErr is set
	handed  error
	moving  sync.WaitGroup   // processes whose record is being created here
	keeping sync.Mutex       // held while a snapshot is made
	order   sync.Mutex       // held while a command is forwarded; taken before mu
	passing bool             // the shim's processes are known
	early   []events.Command // commands that wait until forwarding

	mu          sync.Mutex
	conn        *link.Conn // nil: not connected
	greeted     bool       // the shim has listed its processes
	procs       map[string]*proc
	forgotten   map[string]struct{} // processes whose remaining events are discarded
	pending     map[uint64]*pending // unanswered commands, by rev
	looked      time.Time           // time of the last search for orphaned processes
	strangers   int                 // number of procs that only the shim has reported
	stopping    bool                // stop is closed
	ended       bool                // the shim reported that everything has ended
	closed      bool                // no process can be started and no command sent any more
	told        sandbox.Phase       // the latest phase in the record
	toldSeq     uint64              // its seq
	reboot      bool                // its processes end when it resumes
	goes        bool                // it has resumed since the last pause
	lags        bool                // the instance was paused; see sendTime
	way         *egress.Way         // nil: no network access
	net         sandbox.Network     // the settings in force
	reachable   bool                // net allows any destination
	transformed bool                // net transforms requests
	used        sandbox.NetworkUsed // network usage before this run, and through interfaces

	useTold time.Time // time of meter's last report; of meter's goroutine
}

const (
	sandboxDir    = "sandboxes"
	createTimeout = 60 * time.Second
	buildsPerCPU  = 2                // concurrent instance creations per CPU
	stopTimeout   = 15 * time.Second // after which a sandbox that has not ended by itself is destroyed
)

var (
	errShimGone = errors.New("the sandbox's shim is gone")
	errNoMemory = errors.New("out of memory: the whole sandbox was killed")
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

// setDesired applies the latest state in the sandbox's record.
func (b *box) tell(s *sandbox.State) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.Seq < b.toldSeq {
		return // a newer state was applied first
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

// run creates or adopts the sandbox, serves it, and tears it down.
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

// ensureCreated creates the sandbox unless it exists, and records that it runs.
func (b *box) make(ctx context.Context) error {
	switch {
	case b.phase == sandbox.PhasePlaced && b.instance() == nil:
		return b.create(ctx)
	case b.instance() == nil:
		return errShimGone
	case b.phase == sandbox.PhasePlaced: // the previous run created it and did not record that
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

// prepare lets a driver do its work per template before the first instance of it. A sandbox that
// waits for that occupies no build slot and does not hold up the warm pool.
func prepare(ctx context.Context, d driver.Driver, spec *driver.Spec) error {
	p, ok := d.(driver.Preparing)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, createTimeout)
	defer cancel()
	return p.Prepare(ctx, spec)
}

// build creates an instance, with bounded concurrency: without the bound, a hundred concurrent
// creates would all finish when the last one does.
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

// useWarm gives the sandbox an instance from the warm pool. The journal has that before the
// record says that the sandbox runs; a crash in between leaves an instance without an owner.
func (b *box) moveIn(ready warmPlace) error {
	b.settle(ready.id, ready.inst)
	m := made{b.driver.Name(), ready.id, treesOf(b.tree, b.from)}
	b.handing.Go(func() { b.handed = b.h.journal.hand(b.id, m) })
	return b.h.fault("created")
}

// running records that processes can be started.
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

// tearDown removes the sandbox, ends all process records first, and then ends its own. why is
// what ended it; nil: it ended as requested.
func (b *box) bury(ctx context.Context, why error) error {
	h := b.h
	if err := h.fault("drained"); err != nil {
		return err
	}
	b.shut()
	b.passEarly()             // they are refused
	b.linkUsed(h.linksUsed()) // its interface is removed with it
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
		h.slog.Warn("sandbox ended unexpectedly", "sandbox", b.id, "why", failure(why), "err", why, "shim", said)
	}
	if err := h.fault("buried"); err != nil {
		return err
	}
	b.handing.Wait()
	return h.journal.forgetSandbox(b.id)
}

// finalEvents returns the events that end a sandbox's record.
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

// failureMessage returns the reason of a sandbox's failure as clients may read it.
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

// maxUnattachedTries bounds the attempts to remove an instance that could not be attached to: its
// state may be unreadable for ever.
const unknownTries = 10

// destroy lets the driver remove everything, including what a failed create could not remove
// itself, such as on a host under load.
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
		b.h.slog.Error("destroy sandbox failed, will retry", "sandbox", b.id, "err", err)
		if b.instance() == nil && try == unknownTries {
			return nil
		}
		if !rest(ctx, wait) {
			return ctx.Err()
		}
		wait = min(2*wait, 5*time.Second)
	}
}

// outOfMemory reports whether the instance ended because its memory was exhausted.
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

// endAll ends the record of every remaining process and waits until all are stored. why is what
// ended the sandbox.
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
			lost.Message = "the sandbox was removed before its shim had sent all output"
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

// detach disconnects from a sandbox that continues without this run.
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

// untilStop returns a context that also ends when the sandbox must end. The caller cancels it in
// any case.
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

// ending reports whether the sandbox must end.
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

// count returns the number of processes whose record has not ended.
func (b *box) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.procs)
}

// remove drops a process whose record has ended.
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

// sleep waits for d and reports whether ctx is not done.
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
