package deliver

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/lives"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/seal"
	"github.com/millrace/millrace/events/tracing"
	"github.com/millrace/millrace/events/webhook"
	"github.com/millrace/millrace/internal/waiting"
)

// Config configures the delivery. A zero field means its default.
type Config struct {
	Log      *events.Log       // required
	View     *catalog.View     // of Log; required
	Slog     *slog.Logger      // default: none
	Allow    []netip.Prefix    // non-public addresses that may receive events
	Attempts int               // maximum number of attempts per event; default 12
	Backoff  time.Duration     // pause after the first attempt, doubled after each; default 1 s
	Timeout  time.Duration     // of a request; default 10 s
	Tick     time.Duration     // maximum interval between two checks for work; default 1 s
	Traces   *tracing.Settings // of the export of spans; nil: none is exported
}

const (
	// maxBackoff is the maximum pause between two attempts. With 12 attempts the last one is
	// some 19 minutes after the first.
	maxBackoff = 5 * time.Minute

	// silence is the age of a claim after which another deliverer takes over. Its holder stops
	// sending earlier, holdFor after it last stored the claim.
	silence = 10 * time.Second
	holdFor = 7 * time.Second

	tickParts = 50 // how often per tick new work of processes is looked for

	// maxSearched limits the memory for searches without a result.
	maxSearched = 10_000
)

// deliverer delivers the events of the webhooks that it can claim.
type deliverer struct {
	cfg    Config
	id     string // of this run, in the claims
	ring   *seal.Ring
	client *http.Client
	spans  *http.Client // nil: no spans are exported
	work   sync.WaitGroup
	idle   chan struct{} // signals that a worker ended; capacity 1

	lives *lives.Feed

	searched  map[webhook.ID]search // used only by the goroutine of Run
	following bool                  // lives runs; used only by the goroutine of Run
	exported  time.Time             // start of the last export; used only by the goroutine of Run

	mu      sync.Mutex
	busy    map[webhook.ID]bool
	readers map[webhook.ID]reader
}

// reader is how far the catalog was read for a webhook. While its tenant has no events of processes
// for it, the webhook's cursor does not move, so the next read starts at to.
type reader struct {
	after webhook.Position // the webhook's cursor
	to    lives.Cursor
}

// search is a search for a webhook's next event that found none. While its tenant has only
// events of other types, the webhook's cursor does not move, so the next search starts at to.
type search struct {
	rev       uint64 // of the webhook
	after, to webhook.Position
}

func setDefaults(cfg *Config) {
	cfg.Slog = cmp.Or(cfg.Slog, slog.New(slog.DiscardHandler))
	cfg.Attempts = cmp.Or(max(cfg.Attempts, 0), 12)
	cfg.Backoff = cmp.Or(max(cfg.Backoff, 0), time.Second)
	cfg.Timeout = cmp.Or(max(cfg.Timeout, 0), 10*time.Second)
	cfg.Tick = cmp.Or(max(cfg.Tick, 0), time.Second)
}

// Run delivers events until ctx ends, which is not an error.
func Run(ctx context.Context, cfg Config) error {
	setDefaults(&cfg)
	ring, err := cfg.Log.Ring(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	d := &deliverer{
		cfg: cfg, ring: ring, id: string(webhook.NewID()), client: newClient(&sandbox.Operator{Allow: cfg.Allow}),
		lives: cfg.Log.Lives(), readers: make(map[webhook.ID]reader),
		idle: make(chan struct{}, 1), busy: make(map[webhook.ID]bool), searched: make(map[webhook.ID]search),
	}
	if cfg.Traces != nil {
		d.spans = newSpanClient(cfg.Traces)
		defer d.spans.CloseIdleConnections()
	}
	changed, stop := cfg.View.Changes()
	defer stop()
	defer d.client.CloseIdleConnections()
	defer d.work.Wait()
	tick := time.NewTicker(cfg.Tick)
	defer tick.Stop()
	for {
		var started <-chan struct{}
		if d.following {
			started = d.lives.Changed()
		}
		d.startWorkers(ctx)
		d.startExport(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-started:
			waiting.Sleep(ctx, cfg.Tick/tickParts) // others start or end, too
		case <-d.idle:
		case <-tick.C:
		}
	}
}

// startWorkers starts a worker for each webhook with pending events that no other deliverer has
// claimed.
func (d *deliverer) startWorkers(ctx context.Context) {
	now := time.Now()
	due := d.cfg.View.Webhooks(func(h *catalog.Hook) bool {
		return h.Enabled && (h.Cursor.Holder == "" || h.Cursor.Holder == d.id || now.Sub(h.Cursor.Received) > silence)
	})
	for i := range due {
		h := &due[i]
		if h.ReceivesProcesses() && !d.following {
			d.following = true
			d.work.Go(func() { d.follow(ctx) })
		}
		if !d.isBusy(h.ID) && d.pending(h) && d.markBusy(h.ID) {
			d.work.Go(func() {
				defer d.clearBusy(h.ID)
				w := worker{claim: claim{d: d, tenant: h.Tenant, id: h.ID}, results: make(chan result, window)}
				w.run(ctx)
			})
		}
	}
}

// follow follows the catalog of processes until ctx ends.
func (d *deliverer) follow(ctx context.Context) {
	for {
		if err := d.lives.Run(ctx); err != nil {
			d.cfg.Slog.Warn("follow processes failed", "err", err)
		}
		if !waiting.Sleep(ctx, d.cfg.Tick) {
			return
		}
	}
}

// reader returns how far the catalog was read for a webhook.
func (d *deliverer) reader(h *catalog.Hook) lives.Cursor {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r, ok := d.readers[h.ID]; ok && r.after == h.AfterProcesses() {
		return r.to
	}
	return lives.Cursor{At: h.AfterProcesses().Before()}
}

func (d *deliverer) setReader(id webhook.ID, after webhook.Position, to lives.Cursor) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.readers) >= maxSearched {
		clear(d.readers) // most are of removed webhooks
	}
	d.readers[id] = reader{after, to}
}

// wanted returns which processes a webhook receives events of: those that clients of its tenant started.
func wanted(h *catalog.Hook) func(*process.Summary) bool {
	return func(s *process.Summary) bool { return s.Tenant == h.Tenant && !s.Spec.Helper }
}

// pending reports whether a webhook has events to deliver.
func (d *deliverer) pending(h *catalog.Hook) bool {
	if len(h.Redeliveries.Events) > 0 {
		return true
	}
	if h.ReceivesProcesses() {
		c := d.reader(h)
		more := d.lives.Skip(&c, wanted(h))
		if d.reader(h).At <= c.At { // otherwise a worker has ended meanwhile
			d.setReader(h.ID, h.AfterProcesses(), c)
		}
		if more {
			return true
		}
	}
	after := h.After()
	from, to := after, webhook.Through(d.cfg.View.SandboxesRev())
	if s := d.searched[h.ID]; s.rev == h.Rev && s.after == after {
		from = max(after, s.to)
	}
	if len(d.cfg.View.LifecycleAfter(h.Tenant, from, h.Receives, 1)) > 0 {
		return true
	}
	if len(d.searched) >= maxSearched {
		clear(d.searched) // most are of removed webhooks
	}
	d.searched[h.ID] = search{h.Rev, after, max(from, to)}
	return false
}

func (d *deliverer) isBusy(id webhook.ID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.busy[id]
}

func (d *deliverer) markBusy(id webhook.ID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.busy[id] {
		return false
	}
	d.busy[id] = true
	return true
}

func (d *deliverer) clearBusy(id webhook.ID) {
	d.mu.Lock()
	delete(d.busy, id)
	d.mu.Unlock()
	waiting.Notify(d.idle)
}
