package reaper

import (
	"cmp"
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/fleet"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/tracing"
	"github.com/millrace/millrace/internal/ops"
	"github.com/millrace/millrace/services/reaper/internal/deliver"
	"github.com/millrace/millrace/services/reaper/internal/rekey"
)

// Config configures a reaper. A zero field means its default.
type Config struct {
	Log  *events.Log   // required
	View *catalog.View // of Log, folded at least until Run returns; default: its own view
	Slog *slog.Logger
	Ops  *ops.Role // reports whether the reaper is ready; nil: nothing is reported
	// Tick is the maximum interval between two checks of leases and deadlines; default one
	// second.
	Tick time.Duration
	Now  func() time.Time // the clock of deadlines; default [time.Now]
	// Sweep is the interval at which unreferenced parts are removed from the store of
	// templates and snapshots; default half an hour.
	Sweep time.Duration
	// KeyGrace is the minimum time for which a replaced data key is kept; default 10 min.
	KeyGrace time.Duration
	Service  string // name of this reaper in the changes of the keys; default reaper
	// Webhooks configures the delivery of lifecycle events; Log, View and Slog are those of the reaper.
	Webhooks Webhooks
	// Traces configures the export of processes' spans; nil: none is exported.
	Traces *tracing.Settings
	// Outbound configures the requests to persistence backends.
	Outbound Outbound
}

// MinKeyGrace is the minimum of Config.KeyGrace.
const MinKeyGrace = rekey.MinGrace

// Webhooks configures the delivery of events to webhooks. A zero field means its default.
type Webhooks struct {
	Allow    []netip.Prefix // non-public addresses that may receive events
	Attempts int            // maximum number of attempts per event; default 12
}

const (
	// stepTimeout is the timeout of each part of a pass, so that an unavailable server is noticed
	// and failing records do not delay the others forever.
	stepTimeout = 10 * time.Second
	syncTimeout = 2 * time.Second
	minInterval = 50 * time.Millisecond // minimum interval of passes, however many changes there are

	// idleGrace is how many ticks a reaper is connected before it ends idle sandboxes: gateways that
	// could not move deadlines meanwhile do so first.
	idleGrace = 5

	// firstSweep is soon after the start: a reaper that restarts often would never sweep otherwise.
	firstSweep = time.Minute

	// forkExpiry is the age at which a fork's snapshot is abandoned: far longer than a fork takes.
	forkExpiry = 15 * time.Minute
)

func (cfg *Config) view(ctx context.Context) (*catalog.View, error) {
	if cfg.View != nil {
		return cfg.View, nil
	}
	return cfg.Log.OpenView(ctx)
}

// Run ends what is due until ctx ends, which is not an error.
func Run(ctx context.Context, cfg Config) error {
	cfg.Slog = cmp.Or(cfg.Slog, slog.New(slog.DiscardHandler))
	cfg.Tick = cmp.Or(cfg.Tick, time.Second)
	cfg.Sweep = cmp.Or(cfg.Sweep, 30*time.Minute)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	view, err := cfg.view(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	r := &reaper{cfg: cfg, view: view, settled: make(map[string]uint64)}
	cfg.Ops.Ready("reaper", cfg.Log.Healthy)
	r.contact.MaxGap = 5 * cfg.Tick / 2
	defer r.work.Wait()
	r.work.Go(func() { r.sweep(ctx) })
	r.work.Go(func() { r.sweepCatalog(ctx) })
	r.work.Go(func() { r.deliver(ctx) })
	r.work.Go(func() { r.persist(ctx) })
	r.work.Go(func() { r.rekey(ctx) })
	r.work.Go(func() { r.meter(ctx) })
	r.work.Go(func() { r.tokens(ctx) })
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
			timer.Reset(r.pass(ctx))
		}
	}
}

// reaper must be used only by the goroutine of Run, except for the fields of tearDown. All its
// state is in the view.
type reaper struct {
	cfg     Config
	view    *catalog.View
	contact fleet.Contact
	work    sync.WaitGroup

	tearingDown atomic.Bool
	settled     map[string]uint64 // of tearDown: lease revision of each gone host without open records
	// restarted is closed when the servers may have restarted since the last tearDown; of tearDown.
	restarted <-chan struct{}
}

// deliver sends events to webhooks until ctx ends.
func (r *reaper) deliver(ctx context.Context) {
	err := deliver.Run(ctx, deliver.Config{
		Log: r.cfg.Log, View: r.view, Slog: r.cfg.Slog, Tick: r.cfg.Tick,
		Allow: r.cfg.Webhooks.Allow, Attempts: r.cfg.Webhooks.Attempts, Traces: r.cfg.Traces,
	})
	if err != nil {
		r.warn(ctx, "deliver webhooks failed", "", err)
	}
}

// rekey finishes rotations of the data key until ctx ends.
func (r *reaper) rekey(ctx context.Context) {
	err := rekey.Run(ctx, rekey.Config{Log: r.cfg.Log, Slog: r.cfg.Slog, Service: r.cfg.Service, Grace: r.cfg.KeyGrace, Every: 5 * r.cfg.Tick})
	if err != nil {
		r.warn(ctx, "rotate keys failed", "", err)
	}
}

// pass ends what is due and returns the time until the next pass. Failures are logged and
// retried in the next pass. The records of dead hosts may be many, or unreachable: they are
// ended concurrently, because the contact with other hosts counts only while passes run.
func (r *reaper) pass(ctx context.Context) time.Duration {
	sctx, cancel := context.WithTimeout(ctx, syncTimeout)
	err := r.view.Sync(sctx)
	cancel()
	if err != nil {
		r.warn(ctx, "sync view failed", "", err)
		return r.cfg.Tick
	}
	r.contact.UpToDate(time.Now())
	wait := max(minInterval, r.stopExpired(ctx))
	if dead := r.deadHosts(ctx); len(dead) > 0 && r.tearingDown.CompareAndSwap(false, true) {
		r.work.Go(func() {
			defer r.tearingDown.Store(false)
			r.tearDown(ctx, dead)
		})
	}
	return wait
}

// sweep removes abandoned snapshots, unreferenced parts in the store, and old records, until
// ctx ends.
func (r *reaper) sweep(ctx context.Context) {
	t := time.NewTimer(min(r.cfg.Sweep, firstSweep))
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		t.Reset(r.cfg.Sweep)
		r.dropForks(ctx)
		if err := r.view.SweepRecords(ctx); err != nil {
			r.warn(ctx, "remove old records failed", "", err)
		}
		n, err := r.view.SweepParts(ctx)
		if err != nil {
			r.warn(ctx, "sweep store failed", "", err)
		}
		if n > 0 {
			r.cfg.Slog.Info("removed unreferenced parts", "parts", n)
		}
	}
}

// sweepCatalog removes old entries from the catalog until ctx ends.
func (r *reaper) sweepCatalog(ctx context.Context) {
	t := time.NewTicker(max(min(r.cfg.Log.Retention()/8, time.Minute), time.Second))
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		// Conflict: another reaper was faster.
		if err := r.view.SweepCatalog(ctx); err != nil && !kind.Is(err, kind.Conflict) {
			r.warn(ctx, "sweep catalog failed", "", err)
		}
	}
}

// dropForks deletes the snapshots of forks whose gateway was killed before it could. A
// snapshot that sandboxes are based on is kept.
func (r *reaper) dropForks(ctx context.Context) {
	left := r.view.Snapshots(func(s *sandbox.Snapshot) bool {
		return s.Internal && s.Layer == "" && !s.Deleted && time.Since(s.Taken) > forkExpiry
	})
	for _, s := range left {
		_, err := r.view.ChangeSnapshot(ctx, s.ID, func(now *sandbox.Snapshot) bool { now.Deleted = true; return true })
		if err != nil {
			r.warn(ctx, "delete fork's snapshot failed", string(s.ID), err)
		}
	}
}

func (r *reaper) warn(ctx context.Context, msg, id string, err error) {
	if ctx.Err() == nil || !kind.Is(err, kind.Canceled) {
		r.cfg.Slog.Warn(msg, "id", id, "err", err)
	}
}

// stopExpired stops, or pauses, the sandboxes that are due, and returns how long no other
// one is.
func (r *reaper) stopExpired(ctx context.Context) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	a := agenda{now: r.cfg.Now(), grace: r.contact.Unbroken() < idleGrace*r.cfg.Tick}
	r.view.Sandboxes(func(s *sandbox.State) bool { a.visit(s); return false })
	for _, id := range a.due {
		_, err := r.view.ChangeSandbox(ctx, id, func(s sandbox.State) ([]sandbox.Body, error) {
			return a.events(&s, r.cfg.Now()), nil // none: its deadline moved, or another reaper was first
		})
		if err != nil {
			r.warn(ctx, "end expired sandbox failed", string(id), err)
			continue
		}
		r.cfg.Slog.Info("sandbox reached its deadline", "sandbox", id)
	}
	return a.wait(r.cfg.Tick)
}

// deadHosts returns the hosts that left or whose lease expired. A host with an expired lease
// is first declared gone, under compare-and-append: a concurrent heartbeat wins, and after
// the declaration the host must take a new epoch.
func (r *reaper) deadHosts(ctx context.Context) map[string]fleet.Host {
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	dead := make(map[string]fleet.Host)
	for _, h := range r.view.Hosts() {
		if !r.contact.Silent(&h) {
			continue
		}
		if h.Gone {
			dead[h.Host] = h
			continue
		}
		last := h.Lease
		last.Gone = true
		switch _, err := r.cfg.Log.PutLease(ctx, last, h.Rev); {
		case kind.Is(err, kind.Conflict): // a heartbeat, or another reaper was faster: the view will have it
		case err != nil:
			r.warn(ctx, "declare host gone failed", h.Host, err)
		default:
			r.cfg.Slog.Warn("host is gone: its lease ended", "host", h.Host, "epoch", h.Epoch)
			dead[h.Host] = h
		}
	}
	return dead
}

// tearDown ends the records of dead hosts: processes first, so that a reader of a lost
// sandbox finds its processes ended. A sandbox with a process that could not be ended waits.
// A host without open records is not checked again until one appears: an append that was on its
// way when the host died.
func (r *reaper) tearDown(ctx context.Context, dead map[string]fleet.Host) {
	select {
	case <-r.restarted: // a loss caused by a damaged disk appears when its server starts
		clear(r.settled)
	default:
	}
	r.restarted = r.cfg.Log.Reconnected()
	open := r.withOpen(dead)
	for name, h := range dead {
		if rev, ok := r.settled[name]; ok && rev == h.Rev && !open[name] {
			continue
		}
		span := r.unverified(ctx, &h)
		all, err := r.withTruncated(ctx, name, span, r.suspects(&h, span))
		if err != nil {
			r.warn(ctx, "check ends of a dead host's records failed", name, err)
		}
		left := r.endAll(ctx, h, all)
		if err == nil && len(left) == 0 && !open[name] {
			r.settled[name] = h.Rev
		}
		r.endSandboxes(ctx, map[string]fleet.Host{name: h}, left)
	}
}

// withOpen returns the dead hosts that have sandboxes or processes without an end in the view.
func (r *reaper) withOpen(dead map[string]fleet.Host) map[string]bool {
	open := make(map[string]bool)
	r.view.Sandboxes(func(s *sandbox.State) bool {
		if orphaned(s, dead) {
			open[s.Host] = true
		}
		return false
	})
	r.view.ActiveProcesses("", func(s *process.Summary) bool {
		if h, ok := dead[s.Host]; ok && s.Epoch <= h.Epoch {
			open[s.Host] = true
		}
		return false
	})
	return open
}

// unverified returns the span of the processes that ended on a dead host and whose records may lack their end.
// It begins at the host's last checkpoint and has those that ended shortly before, or it has all, if the stream
// lacks messages that it had then.
func (r *reaper) unverified(ctx context.Context, h *fleet.Host) catalog.EndedSpan {
	_, whole, err := r.cfg.Log.Checkpoint(ctx, h.Host, h.Checkpoint)
	if err != nil {
		r.warn(ctx, "read a dead host's checkpoint failed", h.Host, err)
	}
	if whole && err == nil && h.Checkpoint.Rev <= r.view.ProcessesRev() {
		return catalog.EndedSpan{After: h.Checkpoint.Rev, Since: h.Checkpoint.At.Add(-fleet.JustBefore)}
	}
	return catalog.EndedSpan{}
}

// suspects returns the processes of a dead host whose records may lack their end, of those that run or
// are in a span. It walks twice to save memory: there may have been a million of them.
func (r *reaper) suspects(h *fleet.Host, span catalog.EndedSpan) []process.Summary {
	of := func(s *process.Summary) bool { return s.Host == h.Host && s.Epoch <= h.Epoch }
	all := r.view.ActiveProcesses("", of)
	var newest time.Time
	for some := range r.view.EndedOn(h.Host, span) {
		for i := range some {
			if s := &some[i]; of(s) && !reaped(s) && s.Ended.After(newest) {
				newest = s.Ended
			}
		}
	}
	for some := range r.view.EndedOn(h.Host, span) {
		all = append(all, slices.DeleteFunc(some, func(s process.Summary) bool { return !of(&s) || !suspect(&s, newest) })...)
	}
	return all
}

// withTruncated adds to the processes of a dead host those in a span whose records lack the end that the
// catalog has: the log lost it.
func (r *reaper) withTruncated(ctx context.Context, host string, span catalog.EndedSpan, all []process.Summary) ([]process.Summary, error) {
	known := make(map[process.ID]bool, len(all))
	for i := range all {
		known[all[i].ID] = true
	}
	kept := time.Now().Add(-r.cfg.Log.Retention()) // older records are not
	for ended := range r.view.EndedOn(host, span) {
		ended = slices.DeleteFunc(ended, func(s process.Summary) bool { return s.Last == 0 || known[s.ID] || s.Ended.Before(kept) })
		err := r.cfg.Log.Incomplete(ctx, host, ended, func(s *process.Summary) { all = append(all, *s) })
		if err != nil {
			return all, err
		}
	}
	return all, nil
}

// revived reports whether a host has a newer epoch than the one that ended. The newer run has
// taken over its records.
func (r *reaper) revived(h *fleet.Host) bool {
	now, ok := r.view.Host(h.Host)
	return ok && now.Epoch > h.Epoch
}

// endSandboxes ends the sandboxes of dead hosts as lost, except for those in wait.
func (r *reaper) endSandboxes(ctx context.Context, dead map[string]fleet.Host, wait map[sandbox.ID]bool) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	lost := r.view.Sandboxes(func(s *sandbox.State) bool { return orphaned(s, dead) && !wait[s.ID] })
	for i := range lost {
		_, err := r.view.ChangeSandbox(ctx, lost[i].ID, func(s sandbox.State) ([]sandbox.Body, error) {
			if h := dead[s.Host]; !orphaned(&s, dead) || r.revived(&h) {
				return nil, nil
			}
			return []sandbox.Body{sandbox.Lost{Reason: reason(s.Host)}}, nil
		})
		if err != nil {
			r.warn(ctx, "end lost sandbox failed", string(lost[i].ID), err)
			continue
		}
		r.cfg.Slog.Warn("sandbox lost with its host", "sandbox", lost[i].ID, "host", lost[i].Host)
	}
}

func reason(host string) string { return "host " + host + " stopped renewing its lease" }
