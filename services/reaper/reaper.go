package reaper

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/fleet"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/reaper/internal/deliver"
)

// Config says how to run a reaper. The zero value of a field is its default.
type Config struct {
	Log  *events.Log  // required
	View *events.View // of Log, folded at least until Run returns; default: one of its own
	Slog *slog.Logger
	// Tick is the most time between two looks at leases and deadlines; default
	// one second.
	Tick time.Duration
	// Sweep is how often the store of templates and snapshots is searched
	// for what nothing stands on; default half an hour.
	Sweep time.Duration
	// Webhooks says how lifecycle events are delivered; its Log, View and Slog are the reaper's.
	Webhooks Webhooks
}

// Webhooks says how events are delivered to webhooks. The zero value of a field is its default.
type Webhooks struct {
	Allow    []netip.Prefix // addresses that are not public, to which events may go
	Attempts int            // requests for one event; default 12
}

const (
	// attempt bounds each part of a look, so that a server that went away is noticed
	// and stubborn records do not keep the others waiting for ever.
	attempt  = 10 * time.Second
	syncWait = 2 * time.Second
	soonest  = 50 * time.Millisecond // between two looks, however much happens

	// firstSweep is soon after the start: who is begun anew often would else never come to it.
	firstSweep = time.Minute

	// forkLeft is when a fork's snapshot is nobody's any more: far longer than making forks takes.
	forkLeft = 15 * time.Minute
)

func (cfg *Config) view(ctx context.Context) (*events.View, error) {
	if cfg.View != nil {
		return cfg.View, nil
	}
	return cfg.Log.OpenView(ctx)
}

// Run ends what is due until ctx ends, whose end is no error.
func Run(ctx context.Context, cfg Config) error {
	if cfg.Slog == nil {
		cfg.Slog = slog.New(slog.DiscardHandler)
	}
	if cfg.Tick == 0 {
		cfg.Tick = time.Second
	}
	if cfg.Sweep == 0 {
		cfg.Sweep = 30 * time.Minute
	}
	view, err := cfg.view(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	r := &reaper{cfg: cfg, view: view, settled: make(map[string]uint64)}
	r.contact.MaxGap = 5 * cfg.Tick / 2
	defer r.work.Wait()
	r.work.Go(func() { r.sweep(ctx) })
	r.work.Go(func() { r.sweepCatalogue(ctx) })
	r.work.Go(func() { r.deliver(ctx) })
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
			timer.Reset(r.look(ctx))
		}
	}
}

// reaper belongs to the one goroutine of Run but for what bury has; all it knows is in
// the view.
type reaper struct {
	cfg     Config
	view    *events.View
	contact fleet.Contact
	work    sync.WaitGroup

	burying atomic.Bool
	settled map[string]uint64 // of bury: revision of a gone host's lease, once nothing of it is left
	// Closed when the servers may have been restarted since bury ran last; of bury too.
	restarted <-chan struct{}
}

// deliver sends events to webhooks until ctx ends.
func (r *reaper) deliver(ctx context.Context) {
	err := deliver.Run(ctx, deliver.Config{
		Log: r.cfg.Log, View: r.view, Slog: r.cfg.Slog, Tick: r.cfg.Tick,
		Allow: r.cfg.Webhooks.Allow, Attempts: r.cfg.Webhooks.Attempts,
	})
	if err != nil {
		r.warn(ctx, "deliver webhooks failed", "", err)
	}
}

// look ends what is due and tells when to look again. What fails is logged and
// is as due as before at the next look. What dead hosts had may be much, or out of
// reach: that is ended beside it, for whoever does not look hears nobody.
func (r *reaper) look(ctx context.Context) time.Duration {
	sctx, cancel := context.WithTimeout(ctx, syncWait)
	err := r.view.Sync(sctx)
	cancel()
	if err != nil {
		r.warn(ctx, "the log cannot be read", "", err)
		return r.cfg.Tick
	}
	r.contact.Heard(time.Now())
	wait := max(soonest, r.stopExpired(ctx))
	if dead := r.deadHosts(ctx); len(dead) > 0 && r.burying.CompareAndSwap(false, true) {
		r.work.Go(func() {
			defer r.burying.Store(false)
			r.bury(ctx, dead)
		})
	}
	return wait
}

// sweep removes what was left of snapshots and in the store, and what is too old, until
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
			r.warn(ctx, "old records cannot be removed", "", err)
		}
		n, err := r.view.SweepParts(ctx)
		if err != nil {
			r.warn(ctx, "the store cannot be swept", "", err)
		}
		if n > 0 {
			r.cfg.Slog.Info("parts that nothing stands on were removed", "parts", n)
		}
	}
}

// sweepCatalogue removes old entries from the catalogue until ctx ends.
func (r *reaper) sweepCatalogue(ctx context.Context) {
	t := time.NewTicker(max(min(r.cfg.Log.Retention()/8, time.Minute), time.Second))
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		// Conflict: another reaper was faster.
		if err := r.view.SweepCatalogue(ctx); err != nil && !kind.Is(err, kind.Conflict) {
			r.warn(ctx, "sweep of the catalogue failed", "", err)
		}
	}
}

// dropForks deletes the snapshots of forks whose gateway was killed before it did.
// Sandboxes that stand on one keep it.
func (r *reaper) dropForks(ctx context.Context) {
	left := r.view.Snapshots(func(s *sandbox.Snapshot) bool {
		return s.Internal && s.Layer == "" && !s.Deleted && time.Since(s.Taken) > forkLeft
	})
	for _, s := range left {
		_, err := r.view.ChangeSnapshot(ctx, s.ID, func(now *sandbox.Snapshot) bool { now.Deleted = true; return true })
		if err != nil {
			r.warn(ctx, "a fork's snapshot could not be deleted", string(s.ID), err)
		}
	}
}

func (r *reaper) warn(ctx context.Context, msg, id string, err error) {
	if ctx.Err() == nil || !kind.Is(err, kind.Canceled) {
		r.cfg.Slog.Warn(msg, "id", id, "err", err)
	}
}

// stopExpired stops, or pauses, the sandboxes whose time ran out, and tells how
// long none is.
func (r *reaper) stopExpired(ctx context.Context) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	a := agenda{now: time.Now()}
	r.view.Sandboxes(func(s *sandbox.State) bool { a.visit(s); return false })
	for _, id := range a.due {
		_, err := r.view.ChangeSandbox(ctx, id, func(s sandbox.State) ([]sandbox.Body, error) {
			now := time.Now()
			if !expired(&s, now) {
				return nil, nil // it was given more time, or ended
			}
			return []sandbox.Body{dueNow(&s, now)}, nil
		})
		if err != nil {
			r.warn(ctx, "an expired sandbox could not be ended", string(id), err)
			continue
		}
		r.cfg.Slog.Info("sandbox reached its deadline", "sandbox", id)
	}
	return a.wait(r.cfg.Tick)
}

// deadHosts gives the hosts that left or fell silent and still have something.
// A host that fell silent is declared gone first, under compare-and-append: a
// heartbeat that came in the same moment wins, and after it the host must take
// a new epoch.
func (r *reaper) deadHosts(ctx context.Context) map[string]fleet.Host {
	ctx, cancel := context.WithTimeout(ctx, syncWait)
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
		case kind.Is(err, kind.Conflict): // it lives, or another reaper was faster: the view will say
		case err != nil:
			r.warn(ctx, "a silent host could not be declared gone", h.Host, err)
		default:
			r.cfg.Slog.Warn("host is gone: its lease ended", "host", h.Host, "epoch", h.Epoch)
			dead[h.Host] = h
		}
	}
	return dead
}

// bury ends what the dead hosts had: the processes first, so that whoever sees
// a sandbox lost finds its processes ended. A sandbox of which one could not be ended
// waits. A host of which nothing is left is not looked at again.
func (r *reaper) bury(ctx context.Context, dead map[string]fleet.Host) {
	select {
	case <-r.restarted: // what a damaged disk lost shows when its server starts
		clear(r.settled)
	default:
	}
	r.restarted = r.cfg.Log.Reconnected()
	open := make(map[string]bool)
	r.view.Sandboxes(func(s *sandbox.State) bool {
		if orphaned(s, dead) {
			open[s.Host] = true
		}
		return false
	})
	byHost := make(map[string][]process.Summary)
	for name, h := range dead {
		if rev, ok := r.settled[name]; !ok || rev != h.Rev || open[name] {
			byHost[name] = nil
		}
	}
	if len(byHost) == 0 {
		return
	}
	r.suspects(dead, byHost)
	for name, all := range byHost {
		all = r.withShort(ctx, name, all)
		left := r.endAll(ctx, dead[name], all)
		if len(left) == 0 && !open[name] {
			r.settled[name] = dead[name].Rev
		}
		r.endSandboxes(ctx, map[string]fleet.Host{name: dead[name]}, left)
	}
}

// suspects adds to each host in byHost the processes whose records may lack their end. It
// walks twice, since a host may have had a million that ended long ago.
func (r *reaper) suspects(dead map[string]fleet.Host, byHost map[string][]process.Summary) {
	newest := make(map[string]time.Time)
	of := func(s *process.Summary) bool {
		_, ok := byHost[s.Host]
		return ok && s.Epoch <= dead[s.Host].Epoch
	}
	r.view.Processes("", func(s *process.Summary) bool {
		if of(s) && !reaped(s) && s.Ended.After(newest[s.Host]) {
			newest[s.Host] = s.Ended
		}
		return false
	})
	for _, s := range r.view.Processes("", func(s *process.Summary) bool { return of(s) && suspect(s, newest[s.Host]) }) {
		byHost[s.Host] = append(byHost[s.Host], s)
	}
}

// withShort adds to the processes of a dead host those that ended and whose records lack
// the end that the catalogue has: the log lost it.
func (r *reaper) withShort(ctx context.Context, host string, all []process.Summary) []process.Summary {
	kept := time.Now().Add(-r.cfg.Log.Retention())
	known := make(map[process.ID]bool, len(all))
	for i := range all {
		known[all[i].ID] = true
	}
	ended := r.view.Processes("", func(s *process.Summary) bool {
		return s.Host == host && !s.Active() && s.Last > 0 && s.Ended.After(kept) && !known[s.ID]
	})
	err := r.cfg.Log.Short(ctx, host, ended, func(s *process.Summary) { all = append(all, *s) })
	if err != nil {
		r.warn(ctx, "check ends of a dead host's records failed", host, err)
	}
	return all
}

// revived reports whether a host has a newer life than the one that ended, which has
// taken over what that one left.
func (r *reaper) revived(h *fleet.Host) bool {
	now, ok := r.view.Host(h.Host)
	return ok && now.Epoch > h.Epoch
}

// endSandboxes writes that the sandboxes of dead hosts are lost, but for those that wait.
func (r *reaper) endSandboxes(ctx context.Context, dead map[string]fleet.Host, wait map[sandbox.ID]bool) {
	ctx, cancel := context.WithTimeout(ctx, attempt)
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
			r.warn(ctx, "a lost sandbox could not be ended", string(lost[i].ID), err)
			continue
		}
		r.cfg.Slog.Warn("sandbox is lost with its host", "sandbox", lost[i].ID, "host", lost[i].Host)
	}
}

func reason(host string) string { return "host " + host + " fell silent" }
