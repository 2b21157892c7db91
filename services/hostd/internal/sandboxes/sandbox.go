package sandboxes

import (
	"context"
	"errors"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/services/hostd/internal/cpushare"
	"github.com/millrace/millrace/services/hostd/internal/disk"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/instances"
	"github.com/millrace/millrace/services/hostd/internal/journal"
	"github.com/millrace/millrace/services/hostd/internal/link"
	"github.com/millrace/millrace/services/hostd/internal/network"
	"github.com/millrace/millrace/services/hostd/internal/session"
	"github.com/millrace/millrace/services/hostd/internal/warmpool"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// hostSandbox is a sandbox on this host, from its placement until its teardown is complete.
type hostSandbox struct {
	cfg        *Config
	id         sandbox.ID
	driver     driver.Driver
	req        sandbox.Requested // its environment is open
	tenant     string
	driverName string          // the driver to create it with; empty: the host's default
	created    sandbox.Running // how it was created, whatever the host offers now; zero until then
	phase      sandbox.Phase   // when the sandbox was loaded
	adopted    bool            // created by a previous run
	unreadable error           // why its environment cannot be opened
	begun      func()          // ends what Warm.BeginCreate began

	stop chan struct{} // closed when the sandbox must end
	gone chan struct{} // closed when the sandbox has ended

	cpu  *cpushare.Member
	disk *disk.User

	mu       sync.Mutex
	stopping bool        // stop is closed
	unmount  *time.Timer // ends it if its workspace is not unmounted; nil: its end does not wait

	network   *network.Sandbox
	pausing   pausing
	session   *session.Session
	snapshots snapshotter
	files     sandboxFiles
	current   *instances.Current
	meter     *meter
}

var errNoMemory = errors.New("out of memory: the whole sandbox was killed")

func (set *Set) newSandbox(s *sandbox.State) *hostSandbox {
	sb := &hostSandbox{
		cfg: &set.cfg, id: s.ID, tenant: s.Tenant, req: s.Request, phase: s.Phase, driverName: s.Driver,
		created: sandbox.Running{Driver: s.Driver, Isolation: s.Isolation, Can: s.Can},
		begun:   func() {}, stop: make(chan struct{}), gone: make(chan struct{}),
	}
	sb.req.Env, sb.unreadable = s.Request.OpenEnv(set.cfg.Ring, s.Tenant, string(s.ID))
	sb.current = instances.NewCurrent(s.ID)
	sb.files = sandboxFiles{sb: sb}
	sb.network = sb.newNetwork(s.Used)
	sb.meter = newMeter(set.cfg.Meter, s)
	sb.pausing = pausing{sb: sb, poke: make(chan struct{}, 1)}
	sb.snapshots = snapshotter{sb: sb}
	sb.cpu = &cpushare.Member{ID: s.ID, Instance: sb.current.Instance, Suspended: sb.pausing.suspended, Log: set.cfg.Slog}
	sb.disk = &disk.User{
		ID: s.ID, Instance: sb.current.Instance, Suspended: sb.pausing.suspended, Volumes: s.Request.Volumes, Limited: s.Request.DiskMiB > 0,
	}
	sb.session = set.cfg.Sessions.Session(session.Config{
		ID: sb.id, Tenant: sb.tenant, From: sb.req.From, FromSandbox: sb.req.FromSandbox, Requests: &sb.cpu.Requests, Stop: sb.stop,
		Ending: sb.ending, Unrecorded: func() bool { return sb.phase == sandbox.PhasePlaced }, Usable: sb.pausing.usable,
		Instance: sb.current.Instance, Env: sb.files.env, Spool: sb.openSpool, Network: sb.network,
	})
	sb.setDesired(s)
	return sb
}

// setDesired applies the latest state in the sandbox's record.
func (sb *hostSandbox) setDesired(s *sandbox.State) {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	if s.Seq < sb.pausing.seq {
		return // a newer state was applied first
	}
	sb.pausing.reboot = s.Reboot
	if sb.pausing.seq = s.Seq; sb.pausing.desired != s.Phase {
		sb.pausing.desired, sb.pausing.state = s.Phase, sb.pausing.state.after(pauseEventOf(s.Phase))
		sb.pausing.notify()
	}
	sb.network.Apply(s)
	switch {
	case s.AwaitsUnmount():
		if sb.unmount == nil {
			sb.unmount = time.AfterFunc(unmountTimeout, sb.end)
		}
	case s.Phase == sandbox.PhaseStopping || s.Over():
		sb.endLocked()
	}
}

// unmountTimeout limits how long the end of a sandbox waits for the gateway that stores its workspace.
const unmountTimeout = 10 * time.Second

// end ends the sandbox.
func (sb *hostSandbox) end() {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	sb.endLocked()
}

func (sb *hostSandbox) endLocked() {
	if sb.unmount != nil {
		sb.unmount.Stop()
	}
	if !sb.stopping {
		sb.stopping = true
		close(sb.stop)
	}
}

// run creates or adopts the sandbox, serves it, and tears it down.
func (sb *hostSandbox) run(ctx context.Context) error {
	defer sb.current.Journaled() //nolint:errcheck // it only waits
	defer func() { sb.begun() }()
	err := sb.ensureCreated(ctx)
	if err == nil {
		err = sb.session.Serve(ctx, &sb.pausing, sb.running)
	}
	if ctx.Err() != nil {
		sb.session.Detach()
		return ctx.Err()
	}
	return sb.tearDown(ctx, err)
}

// ensureCreated creates the sandbox unless it exists, and records that it runs.
func (sb *hostSandbox) ensureCreated(ctx context.Context) error {
	switch {
	case sb.phase == sandbox.PhasePlaced && sb.current.Instance() == nil:
		return sb.create(ctx)
	case sb.current.Instance() == nil:
		return session.ErrShimGone
	case sb.phase == sandbox.PhasePlaced: // the previous run created it and did not record that
		return sb.choose(ctx)
	}
	return nil
}

func (sb *hostSandbox) create(ctx context.Context) error {
	cfg := sb.cfg
	if err := cfg.Fault("placed"); err != nil {
		return err
	}
	if err := sb.choose(ctx); err != nil {
		return err
	}
	if sb.unreadable != nil {
		return sb.unreadable
	}
	err := sb.files.ensureTemplate(ctx)
	if err == nil {
		err = sb.files.checkLoader()
	}
	if err != nil {
		return err
	}
	spec := sb.files.spec()
	if spec.From, err = sb.files.ensureSnapshot(ctx); err != nil {
		return err
	}
	if spec.Volumes, err = cfg.Volumes.Mounts(ctx, &sb.req); err != nil {
		return err
	}
	o, _ := cfg.Drivers.Offer(sb.driver.Name()) // without capabilities if the driver is not offered
	if warm, ok := cfg.Warm.Acquire(o, spec); ok {
		sb.begun = cfg.Warm.BeginCreate()
		return sb.useWarm(warm)
	}
	if err := instances.Prepare(ctx, sb.driver, &spec); err != nil {
		return err
	}
	sb.begun = cfg.Warm.BeginCreate()
	cfg.Warm.Keep(o, spec)
	if err := os.MkdirAll(spec.Dir, 0o700); err != nil {
		return err
	}
	if err := cfg.Journal.SetSandbox(sb.id, journal.Created{Driver: sb.driver.Name(), Trees: journal.TreesOf(sb.files.tree, sb.files.snapshotTree)}); err != nil {
		return err
	}
	if err := cfg.Fault("journaled"); err != nil {
		return err
	}
	inst, err := cfg.Instances.Build(ctx, sb.driver, spec)
	if err != nil {
		return err
	}
	sb.current.Set(sb.id, inst)
	return cfg.Fault("created")
}

// useWarm gives the sandbox an instance from the warm pool. The journal has that before the
// record says that the sandbox runs; a crash in between leaves an instance without an owner.
func (sb *hostSandbox) useWarm(warm warmpool.Instance) error {
	sb.current.Set(warm.ID, warm.Inst)
	m := journal.Created{Driver: sb.driver.Name(), Instance: warm.ID, Trees: journal.TreesOf(sb.files.tree, sb.files.snapshotTree)}
	sb.current.Journal(func() error { return sb.cfg.Journal.Assign(sb.id, m) })
	return sb.cfg.Fault("created")
}

// running records that processes can be started.
func (sb *hostSandbox) running(ctx context.Context) error {
	if sb.phase != sandbox.PhasePlaced {
		return nil
	}
	if err := sb.current.Journaled(); err != nil {
		return err
	}
	s, err := sb.cfg.View.ChangeSandbox(ctx, sb.id, func(s sandbox.State) ([]sandbox.Body, error) {
		if s.Phase != sandbox.PhasePlaced {
			return nil, nil
		}
		return []sandbox.Body{sb.created}, nil
	})
	if err != nil {
		return err
	}
	sb.phase = sandbox.PhaseRunning
	sb.meter.start(&s)
	sb.begun()
	sb.setDesired(&s)
	return sb.cfg.Fault("running")
}

// tearDown removes the sandbox, ends all process records first, and then its own. why is the
// cause of the end; nil: it ended as requested.
func (sb *hostSandbox) tearDown(ctx context.Context, why error) error {
	cfg := sb.cfg
	if err := cfg.Fault("drained"); err != nil {
		return err
	}
	sb.session.Shut()
	sb.network.CountLink() // its interface is removed with it
	switch {
	case sb.disk.Evicted.Load():
		why = disk.ErrEvicted
	case errors.Is(why, session.ErrShimGone) && sb.outOfMemory(ctx):
		why = errNoMemory
	}
	measured := sb.meterNow(ctx)
	said := driver.ShimLog(cfg.Instances.Dir(sb.current.Name()))
	if err := sb.destroy(ctx); err != nil {
		return err
	}
	if err := os.RemoveAll(cfg.Instances.Dir(sb.current.Name())); err != nil {
		return err
	}
	sb.files.tree.Release()
	sb.files.snapshotTree.Release()
	if err := cfg.Fault("destroyed"); err != nil {
		return err
	}
	if err := sb.endAll(ctx, why); err != nil {
		return err
	}
	if err := sb.meter.end(ctx, time.Now(), !measured); err != nil {
		return err
	}
	lost := false
	_, err := cfg.View.ChangeSandbox(ctx, sb.id, func(s sandbox.State) ([]sandbox.Body, error) {
		words := finalEvents(&s, why)
		lost = len(words) > 0 && s.Phase != sandbox.PhaseStopping
		return append(sb.network.Traffic(&s), words...), nil
	})
	if err != nil {
		return err
	}
	if lost {
		cfg.Slog.Warn("sandbox ended unexpectedly", "sandbox", sb.id, "why", failureMessage(why), "err", why, "shim", said)
	}
	if err := cfg.Fault("tornDown"); err != nil {
		return err
	}
	sb.current.Journaled() //nolint:errcheck // the sandbox is gone
	return cfg.Journal.Forget(sb.id)
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
	case errors.Is(err, session.ErrShimGone) || errors.Is(err, errNoMemory) || errors.Is(err, disk.ErrEvicted) || errors.Is(err, link.ErrHostile) || errors.Is(err, wire.ErrVersion):
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
		err := sb.cfg.Instances.Remove(ctx, sb.driver, sb.current.Name(), sb.current.Instance())
		if err == nil || ctx.Err() != nil {
			return ctx.Err()
		}
		sb.cfg.Slog.Error("destroy sandbox failed, will retry", "sandbox", sb.id, "err", err)
		if sb.current.Instance() == nil && try == maxUnattachedTries {
			return nil
		}
		if !waiting.Sleep(ctx, wait) {
			return ctx.Err()
		}
		wait = min(2*wait, 5*time.Second)
	}
}

// outOfMemory reports whether the instance ended because its memory was exhausted.
func (sb *hostSandbox) outOfMemory(ctx context.Context) bool {
	if sb.current.Instance() == nil {
		return false
	}
	o, ok := sb.cfg.Drivers.Offer(sb.driver.Name())
	if !ok || !o.Caps.OOMEndsSandbox {
		return false
	}
	s, err := sb.current.Instance().Stats(ctx)
	return err == nil && s.OOMKills > 0
}

// endAll ends the record of every remaining process and waits until all are stored. why is the
// cause of the sandbox's end.
func (sb *hostSandbox) endAll(ctx context.Context, why error) error {
	if sb.adopted {
		if err := sb.cfg.Audits.CompleteAll(ctx, sb.id); err != nil {
			return err
		}
	}
	lost := process.Exit{Cause: process.CauseShimLost}
	if errors.Is(why, errNoMemory) || errors.Is(why, disk.ErrEvicted) {
		lost.Message = why.Error()
	}
	if sb.ending() {
		lost = process.Exit{Cause: process.CauseSandboxGone}
		if sb.session.Truncated() {
			lost.Message = "the sandbox was removed before its shim had sent all output"
		}
	}
	return sb.session.EndAll(ctx, lost)
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
