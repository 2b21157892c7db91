package webhooks

import (
	"context"
	"math"
	"reflect"
	"slices"
	"time"

	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/lives"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/seal"
	"github.com/millrace/millrace/events/webhook"
	"github.com/millrace/millrace/services/gateway/internal/core"
)

// Webhooks implements the operations on webhooks. Its methods may be called concurrently.
type Webhooks struct {
	core  *core.Core
	lives *lives.Feed
}

// New returns Webhooks on c. It does no I/O.
func New(c *core.Core) *Webhooks {
	return &Webhooks{core: c, lives: c.Log.Lives()}
}

// maxWebhooks is the maximum number of webhooks per tenant: each one is work for a deliverer.
const maxWebhooks = 20

// maxRemoved is the maximum number of a tenant's deleted webhooks, which the log keeps for two days.
const maxRemoved = 1000

// CreateWebhook stores a tenant's webhook, which receives the events from now on. No method
// returns its secret. It returns Exhausted if the tenant has maxWebhooks.
func (ws *Webhooks) CreateWebhook(ctx context.Context, p core.Principal, w webhook.Webhook, secret string) (catalog.Hook, error) {
	have, err := ws.List(ctx, p)
	if err != nil {
		return catalog.Hook{}, err
	}
	if n := len(have); n >= maxWebhooks {
		return catalog.Hook{}, kind.Newf(kind.Exhausted, "create webhook", "", "there are %d webhooks: delete one first", n)
	}
	if n := ws.core.View.RemovedWebhooks(p.Tenant); n >= maxRemoved {
		return catalog.Hook{}, kind.Newf(kind.Exhausted, "create webhook", "", "%d webhooks were deleted lately: try again in two days", n)
	}
	w.ID, w.Tenant, w.Created = webhook.NewID(), p.Tenant, time.Now()
	if w.Secret, err = ws.core.Sealer.Seal(w.Place(), secret); err != nil {
		return catalog.Hook{}, core.LogError("create webhook", string(w.ID), err)
	}
	if err := ws.fromNow(ctx, &w); err != nil {
		return catalog.Hook{}, err
	}
	return ws.storeWebhook(ctx, &w)
}

// fromNow makes a webhook receive the events from now on.
func (ws *Webhooks) fromNow(ctx context.Context, w *webhook.Webhook) error {
	if err := w.CheckBatch(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, ws.core.CallTimeout)
	defer cancel()
	end, err := ws.lives.End(ctx)
	w.From, w.FromProcesses = webhook.Through(ws.core.View.SandboxesRev()), webhook.Through(end)
	return core.LogError("store webhook", string(w.ID), err)
}

func (ws *Webhooks) storeWebhook(ctx context.Context, w *webhook.Webhook) (catalog.Hook, error) {
	ctx, cancel := context.WithTimeout(ctx, ws.core.CallTimeout)
	defer cancel()
	_, err := ws.core.Log.PutWebhook(ctx, w)
	if kind.Is(err, kind.Conflict) {
		err = kind.New(kind.Conflict, "store webhook", string(w.ID), "the webhook was changed at the same time")
	}
	if err == nil {
		err = ws.core.Sync(ctx)
	}
	h, _ := ws.core.View.Webhook(w.Tenant, w.ID)
	return h, core.LogError("store webhook", string(w.ID), err)
}

// Webhook returns a tenant's webhook, not older than the call. It returns NotFound also for another tenant's.
func (ws *Webhooks) Webhook(ctx context.Context, p core.Principal, id webhook.ID) (catalog.Hook, error) {
	if err := p.RequireAPIKey("find webhook"); err != nil {
		return catalog.Hook{}, err
	}
	if err := ws.core.Sync(ctx); err != nil {
		return catalog.Hook{}, err
	}
	h, ok := ws.core.View.Webhook(p.Tenant, id)
	if !ok || h.Removed {
		return catalog.Hook{}, kind.New(kind.NotFound, "find webhook", "", "webhook not found")
	}
	return h, nil
}

// List returns the principal's webhooks, oldest first, not older than the call.
func (ws *Webhooks) List(ctx context.Context, p core.Principal) ([]catalog.Hook, error) {
	if err := p.RequireAPIKey("list webhooks"); err != nil {
		return nil, err
	}
	if err := ws.core.Sync(ctx); err != nil {
		return nil, err
	}
	return ws.core.View.Webhooks(func(h *catalog.Hook) bool { return h.Tenant == p.Tenant }), nil
}

// ChangeWebhook applies change to a webhook; a non-empty secret replaces its own. A webhook that
// is enabled again receives the events from then on.
func (ws *Webhooks) ChangeWebhook(ctx context.Context, p core.Principal, id webhook.ID, secret string, change func(*webhook.Webhook)) (catalog.Hook, error) {
	var sealed seal.Text
	return ws.replace(ctx, p, id, func(w *webhook.Webhook) (err error) {
		was := w.Enabled
		change(w)
		if w.Enabled && !was {
			err = ws.fromNow(ctx, w)
		} else {
			err = w.CheckBatch()
		}
		if err != nil {
			return err
		}
		if secret == "" {
			return nil
		}
		if sealed == "" {
			sealed, err = ws.core.Sealer.Seal(w.Place(), secret)
		}
		w.Secret = sealed
		return err
	})
}

// replace stores a changed webhook. A pass that only sealed the secret again meanwhile is no
// conflict.
func (ws *Webhooks) replace(ctx context.Context, p core.Principal, id webhook.ID, change func(*webhook.Webhook) error) (catalog.Hook, error) {
	h, err := ws.Webhook(ctx, p, id)
	for {
		if err != nil {
			return h, err
		}
		next := h.Webhook
		next.Types = slices.Clone(h.Types)
		if err := change(&next); err != nil {
			return h, core.LogError("change webhook", string(id), err)
		}
		stored, sErr := ws.storeWebhook(ctx, &next)
		if !kind.Is(sErr, kind.Conflict) {
			return stored, sErr
		}
		was := h.Webhook
		if h, err = ws.Webhook(ctx, p, id); err == nil && !resealed(&was, &h.Webhook) {
			return h, sErr
		}
	}
}

// resealed reports whether two versions of a webhook differ in their sealed secret only.
func resealed(a, b *webhook.Webhook) bool {
	x := *a
	x.Secret, x.Rev, x.Changed = b.Secret, b.Rev, b.Changed
	return a.Rev != b.Rev && a.Secret != b.Secret && reflect.DeepEqual(&x, b)
}

// DeleteWebhook removes a webhook with its secret. Undelivered events are discarded.
func (ws *Webhooks) DeleteWebhook(ctx context.Context, p core.Principal, id webhook.ID) error {
	_, err := ws.replace(ctx, p, id, func(w *webhook.Webhook) error {
		w.Removed, w.Enabled, w.Secret, w.URL = true, false, "", ""
		return nil
	})
	return err
}

// Since returns the position before the events of a time.
func (ws *Webhooks) Since(ctx context.Context, p core.Principal, since time.Time) (at webhook.Positions, err error) {
	ctx, cancel := context.WithTimeout(ctx, ws.core.CallTimeout)
	defer cancel()
	if at.Sandboxes, err = ws.core.View.FirstSince(ctx, p.Tenant, since); err != nil {
		return at, core.LogError("replay webhook", "", err)
	}
	before, err := ws.lives.Before(ctx, since)
	at.Processes = webhook.Through(before)
	return at, core.LogError("replay webhook", "", err)
}

// Replay delivers the events after a position again, in order.
func (ws *Webhooks) Replay(ctx context.Context, p core.Principal, id webhook.ID, from webhook.Positions) error {
	ctx, cancel := context.WithTimeout(ctx, ws.core.CallTimeout)
	defer cancel()
	for {
		h, err := ws.Webhook(ctx, p, id)
		if err != nil {
			return err
		}
		to := h.Positions().Earlier(from)
		if to.Sandboxes < h.From || to.Processes < h.FromProcesses {
			h.From, h.FromProcesses = min(h.From, to.Sandboxes), min(h.FromProcesses, to.Processes)
			if _, err := ws.storeWebhook(ctx, &h.Webhook); err != nil {
				return err
			}
		}
		h.Cursor.At, h.Cursor.Processes, h.Cursor.Holder = to.Sandboxes, to.Processes, ""
		// A deliverer that works on it finds its claim gone, and restarts from here.
		_, err = ws.core.Log.PutCursor(ctx, p.Tenant, id, &h.Cursor)
		if !kind.Is(err, kind.Conflict) {
			return core.LogError("replay webhook", string(id), err)
		}
	}
}

// Redeliver delivers the event of an earlier delivery once more, whatever its outcome was.
func (ws *Webhooks) Redeliver(ctx context.Context, p core.Principal, id webhook.ID, delivery string) (webhook.Attempt, error) {
	a, err := ws.Delivery(ctx, p, id, delivery)
	if err != nil {
		return a, err
	}
	ctx, cancel := context.WithTimeout(ctx, ws.core.CallTimeout)
	defer cancel()
	for {
		h, err := ws.Webhook(ctx, p, id)
		switch {
		case err != nil:
			return a, err
		case a.Events > 0:
			return a, kind.New(kind.Conflict, "redeliver", string(id), "the delivery is a batch: redeliver the events since a time")
		case !h.Enabled:
			return a, kind.New(kind.Conflict, "redeliver", string(id), "the webhook is not enabled")
		case slices.Contains(h.Redeliveries.Events, a.Ref):
			return a, nil
		case len(h.Redeliveries.Events) >= webhook.MaxRedeliveries:
			return a, kind.Newf(kind.Exhausted, "redeliver", string(id), "%d events are already waiting for redelivery", webhook.MaxRedeliveries)
		}
		next := webhook.Redeliveries{Rev: h.Redeliveries.Rev, Events: append(slices.Clone(h.Redeliveries.Events), a.Ref)}
		if _, err = ws.core.Log.PutRedeliveries(ctx, p.Tenant, id, &next); !kind.Is(err, kind.Conflict) {
			return a, core.LogError("redeliver", string(id), err)
		}
	}
}

// Delivery returns a delivery from a webhook's log. It returns NotFound if it is no longer kept. It
// reads the log forwards, in batches: backwards, each delivery would need a request of its own.
func (ws *Webhooks) Delivery(ctx context.Context, p core.Principal, id webhook.ID, delivery string) (webhook.Attempt, error) {
	var found webhook.Attempt
	err := ws.Deliveries(ctx, p, id, 0, true, func(a webhook.Attempt, _ uint64) bool {
		if a.ID == delivery {
			found = a
		}
		return found.ID == ""
	})
	if err == nil && found.ID == "" {
		err = kind.New(kind.NotFound, "find delivery", "", "delivery not found")
	}
	return found, err
}

// Deliveries reads a webhook's deliveries until yield returns false; see [catalog.Documents.Attempts].
func (ws *Webhooks) Deliveries(ctx context.Context, p core.Principal, id webhook.ID, after uint64, oldest bool, yield func(webhook.Attempt, uint64) bool) error {
	if _, err := ws.Webhook(ctx, p, id); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, ws.core.CallTimeout)
	defer cancel()
	return core.LogError("read deliveries", string(id), ws.core.Log.Attempts(ctx, p.Tenant, id, after, oldest, yield))
}

// Page selects a part of a list.
type Page struct {
	Offset, Limit int
	Oldest        bool           // oldest first
	Types         []webhook.Type // types of events; empty: all
}

func (g *Page) wants(t webhook.Type) bool { return len(g.Types) == 0 || slices.Contains(g.Types, t) }

// Lifecycle returns a page of the lifecycle events of all of the principal's sandboxes, not older
// than the call.
func (ws *Webhooks) Lifecycle(ctx context.Context, p core.Principal, page Page) ([]webhook.Event, error) {
	if err := p.RequireAPIKey("list events"); err != nil {
		return nil, err
	}
	if err := ws.core.Sync(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, ws.core.CallTimeout)
	defer cancel()
	at := ws.core.View.LifecyclePage(p.Tenant, page.wants, page.Offset, page.Limit, page.Oldest)
	out, err := ws.core.Log.LifecycleEvents(ctx, p.Tenant, at)
	return out, core.LogError("list events", "", err)
}

// SandboxLifecycle is Lifecycle for one sandbox, also an ended one. It returns NotFound also for
// another tenant's.
func (ws *Webhooks) SandboxLifecycle(ctx context.Context, p core.Principal, id sandbox.ID, page Page) ([]webhook.Event, error) {
	if err := p.RequireAPIKey("list events"); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, ws.core.CallTimeout)
	defer cancel()
	most := page.Offset + page.Limit // without Oldest, only the newest events are kept while reading
	var out []webhook.Event
	since := time.Now().Add(-catalog.LifecycleAge)
	err := ws.core.Log.SandboxLifecycle(ctx, p.Tenant, id, func(e webhook.Event) bool {
		if e.Time.Before(since) || !page.wants(e.Type) {
			return true
		}
		out = append(out, e)
		if !page.Oldest && len(out) >= 2*most {
			out = slices.Delete(out, 0, len(out)-most)
		}
		return !page.Oldest || len(out) < most
	})
	if err != nil {
		return nil, core.LogError("list events", string(id), err)
	}
	if !page.Oldest {
		slices.Reverse(out)
	}
	return out[min(page.Offset, len(out)):min(most, len(out))], nil
}

// WebhookTotals sums up the deliveries of all webhooks, also removed ones, and their lag.
type WebhookTotals struct {
	catalog.HookTotals
	Lag     int            // undelivered events; of ends of processes at most maxLag for a webhook
	Lagging int            // webhooks with undelivered events
	Spans   webhook.Cursor // of the export of spans; its Rev is 0 if there was none
}

// maxLag is how many processes that ended after the last cursor are looked at. The alert is below it.
const maxLag = 20000

// WebhookTotals folds the cursors of all webhooks.
func (ws *Webhooks) WebhookTotals() WebhookTotals {
	t := WebhookTotals{HookTotals: ws.core.View.HookTotals(), Spans: ws.core.View.SpansCursor()}
	all := ws.core.View.Webhooks(func(h *catalog.Hook) bool { return h.Enabled })
	ended := ws.endedAfterCursors(all)
	for i := range all {
		h := &all[i]
		n := ws.core.View.LifecycleLag(h.Tenant, h.After(), h.Receives)
		for k := range ended {
			if e := &ended[k]; e.Tenant == h.Tenant && e.Rev > h.AfterProcesses().Rev() && h.Receives(webhook.EndOf(&e.Summary)) {
				n++
			}
		}
		if n > 0 {
			t.Lag += n
			t.Lagging++
		}
	}
	return t
}

// endedAfterCursors returns the first processes that ended after the last cursor of the webhooks that
// receive events of processes.
func (ws *Webhooks) endedAfterCursors(all []catalog.Hook) []catalog.EndedProcess {
	last, receives := uint64(math.MaxUint64), false
	for i := range all {
		if h := &all[i]; h.ReceivesProcesses() {
			last, receives = min(last, h.AfterProcesses().Rev()), true
		}
	}
	if !receives {
		return nil
	}
	return ws.core.View.EndedAfter(last, maxLag)
}
