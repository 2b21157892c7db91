package persist

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/bootstrap"
	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/persistence"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/seal"
	"github.com/millrace/millrace/events/webhook"
	"github.com/millrace/millrace/internal/outbound"
	"github.com/millrace/millrace/internal/waiting"
)

// Config configures the delivery. A zero field means its default.
type Config struct {
	Log      *events.Log     // required
	View     *catalog.View   // of Log; required
	Slog     *slog.Logger    // default: none
	Outbound outbound.Policy // addresses that backends may have; default public ones
	Backoff  time.Duration   // pause after the first failure, doubled after each; default 1 s
	Timeout  time.Duration   // of a request; default 30 s
	Tick     time.Duration   // interval between two checks for work; default 1 s
}

const (
	maxBackoff   = 5 * time.Minute
	sweepEvery   = time.Hour
	storeTimeout = 2 * time.Second
	// settled is how long after its end a sandbox without a runtime may still get one in the view.
	settled = time.Minute
)

// deliverer sends the messages of the sandboxes that it can claim.
type deliverer struct {
	cfg    Config
	id     string // of this run, in the claims
	ring   *seal.Ring
	store  *persistence.Store
	client *http.Client
	work   sync.WaitGroup

	mu   sync.Mutex
	busy map[sandbox.ID]bool
}

// Run sends messages until ctx ends, which is not an error.
func Run(ctx context.Context, cfg Config) error {
	cfg.Slog = cmp.Or(cfg.Slog, slog.New(slog.DiscardHandler))
	cfg.Backoff = cmp.Or(max(cfg.Backoff, 0), time.Second)
	cfg.Timeout = cmp.Or(max(cfg.Timeout, 0), 30*time.Second)
	cfg.Tick = cmp.Or(max(cfg.Tick, 0), time.Second)
	d := &deliverer{
		cfg: cfg, id: string(webhook.NewID()), store: cfg.Log.Persistence(), client: newClient(&cfg.Outbound), busy: make(map[sandbox.ID]bool),
	}
	err := d.open(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	defer d.client.CloseIdleConnections()
	defer d.work.Wait()
	changed, stop := cfg.View.Changes()
	defer stop()
	tick := time.NewTicker(cfg.Tick)
	defer tick.Stop()
	swept := time.Now()
	for {
		d.startWorkers(ctx, time.Now())
		if time.Since(swept) > sweepEvery {
			swept = time.Now()
			if err := d.store.Sweep(ctx); err != nil && ctx.Err() == nil {
				cfg.Slog.Warn("remove old persistence progress failed", "err", err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
			if !waiting.Sleep(ctx, cfg.Tick/10) {
				return nil
			}
		case <-tick.C:
		}
	}
}

// open opens what a run needs.
func (d *deliverer) open(ctx context.Context) (err error) {
	if d.ring, err = d.cfg.Log.Ring(ctx); err != nil {
		return err
	}
	if err = d.store.Start(ctx); err != nil {
		return err
	}
	if err = d.store.Sync(ctx); err != nil {
		return err
	}
	return d.cfg.View.Sync(ctx)
}

// startWorkers starts a worker for each sandbox with a runtime whose messages are not all sent.
func (d *deliverer) startWorkers(ctx context.Context, now time.Time) {
	all := d.cfg.View.Sandboxes(func(s *sandbox.State) bool { return s.Request.E2A.Persistence.URL != "" })
	open := make(map[string]uint32) // the first generation that is not done, by conversation
	for i := range all {
		s := &all[i]
		if d.store.Get(s.Tenant, s.ID).Done {
			continue
		}
		id, g := s.Tenant+" "+conversationOf(s), s.Request.E2A.Persistence.Generation
		if first, ok := open[id]; !ok || g < first {
			open[id] = g
		}
	}
	for i := range all {
		s := &all[i]
		p := d.store.Get(s.Tenant, s.ID)
		if !p.Free(d.id, now) || now.Before(p.Stored.Add(d.pause(p.Failures))) || open[s.Tenant+" "+conversationOf(s)] != s.Request.E2A.Persistence.Generation {
			continue
		}
		runtime, ok := d.runtimeOf(s)
		if !ok && !(s.Over() && now.Sub(s.Ended) > settled) || !d.markBusy(s.ID) {
			continue
		}
		d.work.Go(func() {
			defer d.clearBusy(s.ID)
			w := worker{d: d, s: *s, p: p}
			if err := w.run(ctx, runtime, ok); err != nil && ctx.Err() == nil && !kind.Is(err, kind.Conflict) {
				d.cfg.Slog.Warn("send conversation to its persistence backend failed", "tenant", s.Tenant, "sandbox", s.ID, "err", err)
			}
			w.release(ctx)
		})
	}
}

// runtimeOf returns the runtime of a sandbox, or its agent.
func (d *deliverer) runtimeOf(s *sandbox.State) (process.Summary, bool) {
	return d.cfg.View.FirstHelper(s.ID, bootstrap.Tag, bootstrap.AgentTag)
}

// pause returns the pause after so many failures.
func (d *deliverer) pause(failures uint32) time.Duration {
	if failures == 0 {
		return 0
	}
	return waiting.Delay(int(failures)-1, d.cfg.Backoff, maxBackoff)
}

func (d *deliverer) markBusy(id sandbox.ID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.busy[id] {
		return false
	}
	d.busy[id] = true
	return true
}

func (d *deliverer) clearBusy(id sandbox.ID) {
	d.mu.Lock()
	delete(d.busy, id)
	d.mu.Unlock()
}
