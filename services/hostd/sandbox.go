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
	"github.com/millrace/millrace/events/template"
	"github.com/millrace/millrace/services/hostd/internal/cpushare"
	"github.com/millrace/millrace/services/hostd/internal/disk"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/egress"
	"github.com/millrace/millrace/services/hostd/internal/fair"
	"github.com/millrace/millrace/services/hostd/internal/journal"
	"github.com/millrace/millrace/services/hostd/internal/link"
	"github.com/millrace/millrace/services/hostd/internal/templates"
	"github.com/millrace/millrace/services/hostd/internal/warmpool"
)

// hostSandbox is a sandbox on this host, from its placement until its teardown is complete.
type hostSandbox struct {
	h            *host
	id           sandbox.ID
	driver       driver.Driver
	inst         driver.Instance
	tree         *templates.Tree // nil: the host's own files
	snapshotTree *templates.Tree // the snapshot that it is based on, from the store; nil: none, or a snapshot of this host
	req          sandbox.Requested
	tenant       string
	driverName   string          // the driver to create it with; empty: the host's default
	created      sandbox.Running // how it was created, whatever the host offers now; zero until then
	instMu       sync.RWMutex    // guards instID and inst, which a reboot replaces
	instID       sandbox.ID      // the name of its instance on the host; mostly its own ID
	phase        sandbox.Phase   // when the sandbox was loaded
	adopted      bool            // created by a previous run
	flow         *fair.Flow      // its share of the store bandwidth
	tails        *tails          // nil: created by this run

	ready   chan struct{} // closed when the shim's processes are known, or the shim is gone
	stop    chan struct{} // closed when the sandbox must end
	drained chan struct{} // closed when, after End, every record has ended
	gone    chan struct{} // closed when the sandbox has ended
	poke    chan struct{} // has a value when the record may request a pause, a resume or the end

	cpu         *cpushare.Member
	disk        *disk.User
	queuedBytes atomic.Int64  // bytes of commands that the shim has not accepted yet; see admit
	lookups     chan struct{} // has a value for each process lookup in progress

	paused    bool // of serve's goroutine: the instance is paused, as far as hostd knows
	truncated bool // of serve's goroutine: the shim was disconnected before it had sent everything

	journaling sync.WaitGroup // until the journal has the owner of the instance, or journalErr is set
	journalErr error
	restoring  sync.WaitGroup   // processes whose record is being created here
	snapshotMu sync.Mutex       // held while a snapshot is made
	orderMu    sync.Mutex       // held while a command is forwarded; taken before mu
	forwarding bool             // the shim's processes are known
	queue      []events.Command // commands that wait until forwarding

	mu           sync.Mutex
	conn         *link.Conn // nil: not connected
	procsListed  bool       // the shim has listed its processes
	procs        map[string]*proc
	forgotten    map[string]struct{} // processes whose remaining events are discarded
	pending      map[uint64]*pending // unanswered commands, by rev
	lastSweep    time.Time           // time of the last removal of expired commands from pending
	unknownProcs int                 // number of procs that only the shim has reported
	stopping     bool                // stop is closed
	ended        bool                // the shim reported that everything has ended
	closed       bool                // no process can be started and no command sent any more
	desired      sandbox.Phase       // the latest phase in the record
	desiredSeq   uint64              // its seq
	reboot       bool                // its processes end when it resumes
	resumed      bool                // it has resumed since the last pause
	clockBehind  bool                // the instance was paused; see sendTime
	route        *egress.Route       // nil: no network access
	net          sandbox.Network     // the settings in force
	reachable    bool                // net allows any destination
	transformed  bool                // net transforms requests
	used         sandbox.NetworkUsed // network usage before this run, and through interfaces

	usedReported time.Time // time of meter's last report; of meter's goroutine
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

func newSandbox(h *host, s *sandbox.State) *hostSandbox {
	sb := &hostSandbox{
		h: h, flow: h.gate.Flow(), id: s.ID, instID: s.ID, tenant: s.Tenant, req: s.Request, phase: s.Phase, driverName: s.Driver,
		created: sandbox.Running{Driver: s.Driver, Isolation: s.Isolation, Can: s.Can}, used: s.Used,
		ready: make(chan struct{}), stop: make(chan struct{}), drained: make(chan struct{}), gone: make(chan struct{}), poke: make(chan struct{}, 1),
		lookups: make(chan struct{}, maxLookups),
		procs:   make(map[string]*proc), forgotten: make(map[string]struct{}), pending: make(map[uint64]*pending),
	}
	sb.cpu = &cpushare.Member{ID: s.ID, Instance: sb.instance, Suspended: sb.suspended, Log: h.slog}
	sb.disk = &disk.User{
		ID: s.ID, Instance: sb.instance, Suspended: sb.suspended, Volumes: s.Request.Volumes, Limited: s.Request.DiskMiB > 0,
	}
	sb.setDesired(s)
	return sb
}

func (h *host) root() string { return filepath.Join(h.cfg.DataDir, sandboxDir) }

func (h *host) dirOf(id sandbox.ID) string { return filepath.Join(h.root(), string(id)) }

// setDesired applies the latest state in the sandbox's record.
func (sb *hostSandbox) setDesired(s *sandbox.State) {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	if s.Seq < sb.desiredSeq {
		return // a newer state was applied first
	}
	sb.reboot = s.Reboot
	if sb.desiredSeq = s.Seq; sb.desired != s.Phase {
		if sb.desired = s.Phase; s.Phase == sandbox.PhasePausing {
			sb.resumed = false
		}
		sb.pokeServe()
	}
	sb.applyNetwork(s)
	if (s.Phase == sandbox.PhaseStopping || s.Over()) && !sb.stopping {
		sb.stopping = true
		close(sb.stop)
	}
}

// run creates or adopts the sandbox, serves it, and tears it down.
func (sb *hostSandbox) run(ctx context.Context) error {
	defer sb.journaling.Wait()
	err := sb.ensureCreated(ctx)
	if err == nil {
		err = sb.serve(ctx)
	}
	if ctx.Err() != nil {
		sb.detach()
		return ctx.Err()
	}
	return sb.tearDown(ctx, err)
}

// ensureCreated creates the sandbox unless it exists, and records that it runs.
func (sb *hostSandbox) ensureCreated(ctx context.Context) error {
	switch {
	case sb.phase == sandbox.PhasePlaced && sb.instance() == nil:
		return sb.create(ctx)
	case sb.instance() == nil:
		return errShimGone
	case sb.phase == sandbox.PhasePlaced: // the previous run created it and did not record that
		return sb.choose(ctx)
	}
	return nil
}

func (sb *hostSandbox) create(ctx context.Context) error {
	h := sb.h
	if err := h.fault("placed"); err != nil {
		return err
	}
	if err := sb.choose(ctx); err != nil {
		return err
	}
	err := sb.ensureTemplate(ctx)
	if err == nil {
		err = sb.checkLoader()
	}
	if err != nil {
		return err
	}
	spec := sb.spec()
	if spec.From, err = sb.ensureSnapshot(ctx); err != nil {
		return err
	}
	if spec.Volumes, err = h.volumes.Mounts(&sb.req); err != nil {
		return err
	}
	o, offered := h.drivers.Offer(sb.driver.Name())
	slow := offered && o.Caps.Slow
	if slow {
		if warm, ok := h.warm.Acquire(o.Driver, spec); ok {
			return sb.useWarm(warm)
		}
	}
	if err := prepare(ctx, sb.driver, &spec); err != nil {
		return err
	}
	h.warm.BeginCreate()
	defer h.warm.EndCreate()
	if slow {
		h.warm.Keep(o.Driver, spec)
	}
	if err := os.MkdirAll(spec.Dir, 0o700); err != nil {
		return err
	}
	if err := h.journal.SetSandbox(sb.id, journal.Created{Driver: sb.driver.Name(), Trees: journal.TreesOf(sb.tree, sb.snapshotTree)}); err != nil {
		return err
	}
	if err := h.fault("journaled"); err != nil {
		return err
	}
	inst, err := h.build(ctx, sb.driver, spec)
	if err != nil {
		return err
	}
	sb.setInstance(sb.id, inst)
	return h.fault("created")
}

// prepare lets a driver do its work per template before the first instance of it. A sandbox that
// waits for that occupies no build slot and does not hold up the warm pool.
func prepare(ctx context.Context, d driver.Driver, spec *driver.Spec) error {
	p, ok := d.(driver.Preparer)
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

// newWarm returns the warm pool of the host.
func (h *host) newWarm() *warmpool.Pool {
	return warmpool.New(warmpool.Config{
		Size: max(h.cfg.Warm, 0), Dir: h.dirOf, Prepare: prepare, Create: h.build, Remove: h.remove, Log: h.slog,
		Hold: func(id template.ID) *templates.Tree {
			t, _ := h.templates.Hold(id)
			return t
		},
		Record: func(id sandbox.ID, driver string, tree *templates.Tree) error {
			return h.journal.SetSandbox(id, journal.Created{Driver: driver, Trees: journal.TreesOf(tree)})
		},
		Forget: h.journal.Forget,
	})
}

// useWarm gives the sandbox an instance from the warm pool. The journal has that before the
// record says that the sandbox runs; a crash in between leaves an instance without an owner.
func (sb *hostSandbox) useWarm(warm warmpool.Instance) error {
	sb.setInstance(warm.ID, warm.Inst)
	m := journal.Created{Driver: sb.driver.Name(), Instance: warm.ID, Trees: journal.TreesOf(sb.tree, sb.snapshotTree)}
	sb.journaling.Go(func() { sb.journalErr = sb.h.journal.Assign(sb.id, m) })
	return sb.h.fault("created")
}

// running records that processes can be started.
func (sb *hostSandbox) running(ctx context.Context) error {
	if sb.phase != sandbox.PhasePlaced {
		return nil
	}
	if sb.journaling.Wait(); sb.journalErr != nil {
		return sb.journalErr
	}
	s, err := sb.h.view.ChangeSandbox(ctx, sb.id, func(s sandbox.State) ([]sandbox.Body, error) {
		if s.Phase != sandbox.PhasePlaced {
			return nil, nil
		}
		return []sandbox.Body{sb.created}, nil
	})
	if err != nil {
		return err
	}
	sb.phase = sandbox.PhaseRunning
	sb.setDesired(&s)
	return sb.h.fault("running")
}

// tearDown removes the sandbox, ends all process records first, and then its own. why is the
// cause of the end; nil: it ended as requested.
func (sb *hostSandbox) tearDown(ctx context.Context, why error) error {
	h := sb.h
	if err := h.fault("drained"); err != nil {
		return err
	}
	sb.shut()
	sb.forwardQueued()                 // they are refused
	sb.addLinkTraffic(h.linkTraffic()) // its interface is removed with it
	switch {
	case sb.disk.Evicted.Load():
		why = disk.ErrEvicted
	case errors.Is(why, errShimGone) && sb.outOfMemory(ctx):
		why = errNoMemory
	}
	said := driver.ShimLog(h.dirOf(sb.instanceID()))
	if err := sb.destroy(ctx); err != nil {
		return err
	}
	if err := os.RemoveAll(h.dirOf(sb.instanceID())); err != nil {
		return err
	}
	sb.tree.Release()
	sb.snapshotTree.Release()
	if err := h.fault("destroyed"); err != nil {
		return err
	}
	if err := sb.endAll(ctx, why); err != nil {
		return err
	}
	lost := false
	_, err := h.view.ChangeSandbox(ctx, sb.id, func(s sandbox.State) ([]sandbox.Body, error) {
		words := finalEvents(&s, why)
		lost = len(words) > 0 && s.Phase != sandbox.PhaseStopping
		return append(sb.traffic(&s), words...), nil
	})
	if err != nil {
		return err
	}
	if lost {
		h.slog.Warn("sandbox ended unexpectedly", "sandbox", sb.id, "why", failureMessage(why), "err", why, "shim", said)
	}
	if err := h.fault("tornDown"); err != nil {
		return err
	}
	sb.journaling.Wait()
	return h.journal.Forget(sb.id)
}

// finalEvents returns the events that end a sandbox's record.
func finalEvents(s *sandbox.State, why error) []sandbox.Body {
	switch s.Phase {
	case sandbox.PhasePlaced:
		return []sandbox.Body{sandbox.Failed{Message: failureMessage(why)}}
	case sandbox.PhaseRunning, sandbox.PhasePausing, sandbox.PhasePaused, sandbox.PhaseResuming:
		return []sandbox.Body{sandbox.Lost{Reason: failureMessage(why)}}
	case sandbox.PhaseStopping:
		return []sandbox.Body{sandbox.Destroyed{Cause: s.Cause}}
	}
	return nil
}

// failureMessage returns the reason of a sandbox's failure as clients may read it.
func failureMessage(err error) string {
	switch {
	case err == nil:
		return "the sandbox ended by itself"
	case errors.Is(err, errShimGone) || errors.Is(err, errNoMemory) || errors.Is(err, disk.ErrEvicted) || errors.Is(err, link.ErrHostile):
		return err.Error()
	case errors.Is(err, syscall.ENOSPC):
		return "the disk of the sandbox's host is full"
	}
	return kind.Message(err)
}

// maxUnattachedTries bounds the attempts to remove an instance that could not be attached to: its
// state may be unreadable for ever.
const maxUnattachedTries = 10

// destroy lets the driver remove everything, including what a failed create could not remove
// itself, such as on a host under load.
func (sb *hostSandbox) destroy(ctx context.Context) error {
	if sb.driver == nil {
		return nil
	}
	wait := 100 * time.Millisecond
	for try := 1; ; try++ {
		err := sb.h.remove(ctx, sb.driver, sb.instanceID(), sb.instance())
		if err == nil || ctx.Err() != nil {
			return ctx.Err()
		}
		sb.h.slog.Error("destroy sandbox failed, will retry", "sandbox", sb.id, "err", err)
		if sb.instance() == nil && try == maxUnattachedTries {
			return nil
		}
		if !sleep(ctx, wait) {
			return ctx.Err()
		}
		wait = min(2*wait, 5*time.Second)
	}
}

// outOfMemory reports whether the instance ended because its memory was exhausted.
func (sb *hostSandbox) outOfMemory(ctx context.Context) bool {
	if sb.instance() == nil {
		return false
	}
	o, ok := sb.h.drivers.Offer(sb.driver.Name())
	if !ok || !o.Caps.OOMEndsSandbox {
		return false
	}
	s, err := sb.instance().Stats(ctx)
	return err == nil && s.OOMKills > 0
}

// endAll ends the record of every remaining process and waits until all are stored. why is the
// cause of the sandbox's end.
func (sb *hostSandbox) endAll(ctx context.Context, why error) error {
	if err := sb.completeAll(ctx); err != nil {
		return err
	}
	lost := process.Exit{Cause: process.CauseShimLost}
	if errors.Is(why, errNoMemory) || errors.Is(why, disk.ErrEvicted) {
		lost.Message = why.Error()
	}
	sb.mu.Lock()
	if sb.stopping {
		lost = process.Exit{Cause: process.CauseSandboxGone}
		if sb.truncated {
			lost.Message = "the sandbox was removed before its shim had sent all output"
		}
	}
	procs := make([]*proc, 0, len(sb.procs))
	for _, p := range sb.procs {
		procs = append(procs, p)
	}
	sb.mu.Unlock()
	procs = append(procs, sb.orphans()...)
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
func (sb *hostSandbox) detach() {
	sb.mu.Lock()
	conn := sb.conn
	sb.conn = nil
	sb.mu.Unlock()
	if conn != nil {
		conn.Close()
	}
	sb.markReady()
}

// untilStop returns a context that also ends when the sandbox must end. The caller cancels it in
// any case.
func (sb *hostSandbox) untilStop(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-sb.stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// ending reports whether the sandbox must end.
func (sb *hostSandbox) ending() bool {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	return sb.stopping
}

func (sb *hostSandbox) markReady() {
	select {
	case <-sb.ready:
	default:
		close(sb.ready)
	}
}

// count returns the number of processes whose record has not ended.
func (sb *hostSandbox) count() int {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	return len(sb.procs)
}

// remove drops a process whose record has ended.
func (sb *hostSandbox) remove(p *proc) {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	if sb.procs[p.id.Token()] == p {
		delete(sb.procs, p.id.Token())
		if p.unknown {
			sb.unknownProcs--
		}
	}
	sb.ifDrained()
}

func (sb *hostSandbox) ifDrained() {
	if !sb.ended || len(sb.procs) > 0 {
		return
	}
	select {
	case <-sb.drained:
	default:
		close(sb.drained)
	}
}

// sleep waits for d and reports whether ctx is not done.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

func (sb *hostSandbox) hostile(format string, args ...any) error {
	return fmt.Errorf("%w: %s", link.ErrHostile, fmt.Sprintf(format, args...))
}
