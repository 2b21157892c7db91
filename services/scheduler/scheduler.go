package scheduler

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/fleet"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/template"
	"github.com/millrace/millrace/internal/ops"
	"github.com/millrace/millrace/internal/waiting"
)

// Config configures a scheduler. A zero field means its default.
type Config struct {
	Log  *events.Log   // required
	View *catalog.View // of Log, folded at least until Run returns; default: its own view
	Slog *slog.Logger
	Ops  *ops.Role // reports whether the scheduler is ready; nil: nothing is reported
	// Tick is the interval of checks of the leases; default one second. Requests are
	// handled immediately.
	Tick time.Duration
	// CPUOvercommit and MemoryOvercommit are the ratios by which the limits of a host's
	// sandboxes may exceed its CPUs and memory; default 16 and 1. A sandbox without a limit
	// is not counted.
	CPUOvercommit, MemoryOvercommit float64
	// Fault is called at the fault point "picked", between a choice and its append; an
	// error ends Run there. For tests.
	Fault func(point string) error
}

const (
	// stepTimeout is the timeout of each step, so that an unavailable server is noticed.
	stepTimeout = 5 * time.Second
	minPause    = time.Millisecond
	maxPause    = time.Second

	cpuOvercommit    = 16 // CPU is shared when it is scarce, and most sandboxes are idle
	memoryOvercommit = 1  // memory is not shared
)

func (cfg *Config) view(ctx context.Context) (*catalog.View, error) {
	if cfg.View != nil {
		return cfg.View, nil
	}
	return cfg.Log.OpenView(ctx)
}

// Run places requested sandboxes until ctx ends, which is not an error.
func Run(ctx context.Context, cfg Config) error {
	cfg.Slog = cmp.Or(cfg.Slog, slog.New(slog.DiscardHandler))
	cfg.Tick = cmp.Or(cfg.Tick, time.Second)
	cfg.CPUOvercommit = cmp.Or(cfg.CPUOvercommit, cpuOvercommit)
	cfg.MemoryOvercommit = cmp.Or(cfg.MemoryOvercommit, memoryOvercommit)
	view, err := cfg.view(ctx)
	if err != nil {
		return ignoreEnd(ctx, err)
	}
	s := &scheduler{cfg: cfg, view: view}
	cfg.Ops.Ready("scheduler", cfg.Log.Healthy)
	s.contact.MaxGap = 5 * cfg.Tick / 2
	return ignoreEnd(ctx, s.loop(ctx))
}

func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		err = nil
	}
	return err
}

// scheduler must be used only by the goroutine of Run.
type scheduler struct {
	cfg     Config
	view    *catalog.View
	contact fleet.Contact
}

// loop decides on requests whenever the view has changed. It retries after errors of the
// log.
func (s *scheduler) loop(ctx context.Context) error {
	changed, stop := s.view.Changes()
	defer stop()
	tick := time.NewTicker(s.cfg.Tick)
	defer tick.Stop()
	pause := minPause
	for {
		err := s.pass(ctx)
		switch {
		case isFault(err) || ctx.Err() != nil:
			return err
		case err != nil:
			s.cfg.Slog.Warn("place sandboxes failed", "err", err)
			if !waiting.Sleep(ctx, pause) {
				return ctx.Err()
			}
			pause = min(2*pause, maxPause)
			continue
		}
		pause = minPause
		select {
		case <-changed:
		case <-tick.C:
			if err := s.sync(ctx); err != nil && ctx.Err() == nil {
				s.cfg.Slog.Warn("sync view failed", "err", err)
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// outcome is the result of a walk over the requests.
type outcome int

const (
	done       outcome = iota
	conflicted         // a conflicting write: the rest must be decided again
	unverified         // it would refuse, but the view is not synced
)

// pass decides on all requests in placement order.
func (s *scheduler) pass(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	synced := false
	for {
		how, err := s.decideAll(ctx, synced)
		switch {
		case err != nil || how == done:
			return err
		case how == unverified:
			// A refusal requires a current view: this one may lack a host that has just
			// joined.
			if err := s.sync(ctx); err != nil {
				return err
			}
			synced = true
		case !waiting.Sleep(ctx, minPause/2+rand.N(minPause)): // until the view includes the other write
			return ctx.Err()
		}
	}
}

// sync brings the view up to date and records the time.
func (s *scheduler) sync(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	if err := s.view.Sync(ctx); err != nil {
		return err
	}
	s.contact.UpToDate(time.Now())
	return nil
}

// decideAll makes one walk over the requests.
func (s *scheduler) decideAll(ctx context.Context, synced bool) (outcome, error) {
	rev := s.view.SandboxesRev() // before the states: the append expects no newer revision
	waiting := s.view.Sandboxes((*sandbox.State).AwaitsPlacement)
	if len(waiting) == 0 {
		return done, nil
	}
	capacities, running := s.capacities(s.view.Hosts())
	for _, st := range placementOrder(waiting, running) {
		v := place(&st.Request, s.origin(&st.Request), capacities)
		body := v.body(st, time.Now())
		if body == nil || v.Host == nil {
			v.reserve()
		}
		switch {
		case body == nil:
			continue
		case v.Host == nil && !synced:
			return unverified, nil
		}
		next, err := s.decide(ctx, st, rev, &v, body)
		switch {
		case kind.Is(err, kind.Conflict):
			return conflicted, nil
		case err != nil:
			return done, err
		}
		rev = next
	}
	return done, nil
}

// capacities returns the remaining capacity of the hosts, counted in the view: a lease is
// as old as a heartbeat. running is the number of sandboxes of each tenant.
func (s *scheduler) capacities(hosts []fleet.Host) (capacities []hostCapacity, running map[string]int) {
	now := time.Now()
	capacities, running = make([]hostCapacity, 0, len(hosts)), make(map[string]int)
	at := make(map[string]int, len(hosts))
	for i := range hosts {
		h := &hosts[i]
		alive := h.Alive(now)
		if !alive && s.contact.Silent(h) {
			continue
		}
		at[h.Host] = len(capacities)
		capacities = append(capacities, hostCapacity{
			Host: h.Host, Epoch: h.Epoch, Drivers: h.Drivers, Isolations: h.Isolations, Templates: h.Templates, Volumes: h.VolumeDrivers, Enforced: h.Enforced, Fits: h.Fit,
			Capacity: int(h.Capacity), Draining: h.Draining && !h.Starting, Starting: h.Starting, Uncertain: !alive,
			CPU:    quota{Total: uint64(float64(h.CPUs) * 1000 * s.cfg.CPUOvercommit)},
			Memory: quota{Total: uint64(float64(h.MemoryTotal>>20) * s.cfg.MemoryOvercommit)},
		})
	}
	s.view.Sandboxes(func(st *sandbox.State) bool {
		if i, ok := at[st.Host]; ok && !st.Over() {
			capacities[i].take(&st.Request, st.InPause())
			running[st.Tenant]++
		}
		return false
	})
	return capacities, running
}

// origin returns the snapshot that a sandbox starts from, as in the view: a copy may have
// been added since the request.
func (s *scheduler) origin(req *sandbox.Requested) origin {
	if req.FromHost == "" {
		return origin{}
	}
	snap, _ := s.view.Snapshot(req.From)
	o := origin{host: req.FromHost, driver: snap.Driver, fits: snap.Fits, needs: fleet.Needs{System: template.IsHost(snap.Template), CPU: snap.Memory}}
	if snap.Copy.Manifest != "" {
		o.copied, o.tree = true, string(template.SumOf([]byte(snap.Copy.Manifest)))
	}
	return o
}

// decide appends body, the decision about one sandbox, and returns the next revision. A
// placed sandbox is counted on its host.
func (s *scheduler) decide(ctx context.Context, st *sandbox.State, rev uint64, v *verdict, body sandbox.Body) (uint64, error) {
	if s.cfg.Fault != nil {
		if err := s.cfg.Fault("picked"); err != nil {
			return 0, &faultError{err}
		}
	}
	next, err := s.cfg.Log.DecideSandbox(ctx, st, rev, body)
	if err != nil {
		return next, err
	}
	if v.Host != nil {
		v.Host.take(&st.Request, false)
		s.cfg.Slog.Debug("sandbox placed", "sandbox", st.ID, "host", v.Host.Host)
		return next, nil
	}
	_, queued := body.(sandbox.Queued)
	s.cfg.Slog.Info("sandbox not placed", "sandbox", st.ID, "reason", v.Refused.Reason, "queued", queued)
	return next, nil
}

// faultError is an error that a test injected.
type faultError struct{ err error }

func (e *faultError) Error() string { return e.err.Error() }
func (e *faultError) Unwrap() error { return e.err }

func isFault(err error) bool {
	var fault *faultError
	return errors.As(err, &fault)
}
