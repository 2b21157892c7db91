package catalog

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/internal/codec"
	"github.com/millrace/millrace/events/internal/fold"
	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/seal"
	"github.com/millrace/millrace/events/webhook"
	pb "github.com/millrace/millrace/schema/event/v1"
)

// A webhook has three subjects in one stream, because each has its own writers: the
// tenant's configuration, the delivery cursor, and the events to redeliver. Each is written
// under compare-and-append.
const (
	hookPrefix       = "hook."
	hookCursor       = ".at"
	hookRedeliveries = ".again"
)

func hookSubject(tenant string, id webhook.ID) string { return hookPrefix + tenant + "." + string(id) }

func hookLogSubject(tenant string, id webhook.ID) string {
	return "hooklog." + tenant + "." + string(id)
}

// The cursor of the installation's export of spans is stored like that of a webhook. No tenant has this
// name, because names of tenants begin with a letter or a digit.
const (
	SpansTenant            = "-"
	SpansID     webhook.ID = "7370616e-7300-8000-8000-000000000000"
)

// hookKey returns the subject of the webhook to which a subject belongs.
func hookKey(subject string) string {
	return strings.TrimSuffix(strings.TrimSuffix(subject, hookCursor), hookRedeliveries)
}

// hook is a webhook in the view.
type hook struct {
	doc          webhook.Webhook
	cursor       webhook.Cursor
	redeliveries webhook.Redeliveries
}

// hookTable is the part of a view that has the webhooks.
type hookTable struct {
	progress *fold.Progress
	hooks    map[string]*hook // by the subject of the webhook
	dropped  HookTotals       // of webhooks that the view has dropped
	swept    fold.Swept
}

func newHookTable(p *fold.Progress) *hookTable {
	return &hookTable{progress: p, hooks: make(map[string]*hook)}
}

// Hook is a webhook and the state of its deliveries.
type Hook struct {
	webhook.Webhook
	Cursor       webhook.Cursor
	Redeliveries webhook.Redeliveries
}

// After returns the position up to which all events are done.
func (h *Hook) After() webhook.Position { return max(h.Cursor.At, h.From) }

// AfterProcesses returns the position up to which all events of processes are done.
func (h *Hook) AfterProcesses() webhook.Position { return max(h.Cursor.Processes, h.FromProcesses) }

// Positions returns the positions up to which all events are done.
func (h *Hook) Positions() webhook.Positions {
	return webhook.Positions{Sandboxes: h.After(), Processes: h.AfterProcesses()}
}

// PutWebhook replaces the webhook with stream sequence w.Rev (0: new) and returns the new
// rev. It returns Conflict as in AppendSandbox.
func (d *Documents) PutWebhook(ctx context.Context, w *webhook.Webhook) (uint64, error) {
	b := &pb.Webhook{
		Id: string(w.ID), Tenant: w.Tenant, Name: w.Name, Url: w.URL, Enabled: w.Enabled,
		Sealed: []byte(w.Secret), CreatedNs: codec.Nanos(w.Created), From: uint64(w.From), Removed: w.Removed,
		Format: string(w.Format), FromProcesses: uint64(w.FromProcesses), Batch: uint32(w.Batch),
	}
	for _, t := range w.Types {
		b.Types = append(b.Types, string(t))
	}
	data, err := proto.Marshal(b)
	if err != nil {
		return 0, kind.Wrap(kind.Internal, "put webhook", string(w.ID), err)
	}
	return d.conn.Put(ctx, streams.Hooks, hookSubject(w.Tenant, w.ID), w.Rev, data)
}

// PutCursor replaces the delivery cursor with stream sequence c.Rev and returns the new
// rev. It returns Conflict as in AppendSandbox: another deliverer, or a replay, wrote.
func (d *Documents) PutCursor(ctx context.Context, tenant string, id webhook.ID, c *webhook.Cursor) (uint64, error) {
	data, err := proto.Marshal(&pb.WebhookCursor{
		At: uint64(c.At), Holder: c.Holder, Attempts: c.Attempts, Done: c.Done, GivenUp: c.GivenUp,
		Processes: uint64(c.Processes),
	})
	if err != nil {
		return 0, kind.Wrap(kind.Internal, "put cursor", string(id), err)
	}
	return d.conn.Put(ctx, streams.Hooks, hookSubject(tenant, id)+hookCursor, c.Rev, data)
}

// PutRedeliveries replaces the list of events to redeliver with stream sequence a.Rev and returns
// the new rev. It returns Conflict as in AppendSandbox.
func (d *Documents) PutRedeliveries(ctx context.Context, tenant string, id webhook.ID, a *webhook.Redeliveries) (uint64, error) {
	b := &pb.WebhookAgain{}
	for _, r := range a.Events {
		b.Events = append(b.Events, refToPB(r))
	}
	data, err := proto.Marshal(b)
	if err != nil {
		return 0, kind.Wrap(kind.Internal, "put redelivery", string(id), err)
	}
	return d.conn.Put(ctx, streams.Hooks, hookSubject(tenant, id)+hookRedeliveries, a.Rev, data)
}

func refToPB(r webhook.Ref) *pb.WebhookRef {
	return &pb.WebhookRef{Sandbox: string(r.Sandbox), Position: uint64(r.Position), Process: string(r.Process)}
}

func refFromPB(r *pb.WebhookRef) webhook.Ref {
	return webhook.Ref{Sandbox: sandbox.ID(r.GetSandbox()), Position: webhook.Position(r.GetPosition()), Process: process.ID(r.GetProcess())}
}

func (x *hookTable) applyHook(m store.Message) error {
	key := hookKey(m.Subject)
	h := x.hooks[key]
	if h == nil {
		h = &hook{}
	}
	var err error
	switch {
	case strings.HasSuffix(m.Subject, hookCursor):
		var b pb.WebhookCursor
		if err = proto.Unmarshal(m.Data, &b); err == nil {
			h.cursor = webhook.Cursor{
				At: webhook.Position(b.At), Processes: webhook.Position(b.Processes), Holder: b.Holder, Attempts: b.Attempts, Done: b.Done, GivenUp: b.GivenUp,
				Rev: m.Seq, Received: time.Now(),
			}
		}
	case strings.HasSuffix(m.Subject, hookRedeliveries):
		var b pb.WebhookAgain
		if err = proto.Unmarshal(m.Data, &b); err == nil {
			h.redeliveries = webhook.Redeliveries{Rev: m.Seq}
			for _, r := range b.Events {
				h.redeliveries.Events = append(h.redeliveries.Events, refFromPB(r))
			}
		}
	default:
		h.doc, err = decodeWebhook(m)
	}
	if err == nil {
		x.hooks[key] = h
	}
	return err
}

func decodeWebhook(m store.Message) (webhook.Webhook, error) {
	var b pb.Webhook
	if err := proto.Unmarshal(m.Data, &b); err != nil {
		return webhook.Webhook{}, err
	}
	id, err := webhook.ParseID(b.Id)
	w := webhook.Webhook{
		ID: id, Tenant: b.Tenant, Name: b.Name, URL: b.Url, Enabled: b.Enabled, Secret: seal.Text(b.Sealed),
		Format: webhook.Format(b.Format), Created: codec.Time(b.CreatedNs), From: webhook.Position(b.From), FromProcesses: webhook.Position(b.FromProcesses), Batch: int(b.Batch), Removed: b.Removed, Rev: m.Seq, Changed: m.Time,
	}
	for _, t := range b.Types {
		w.Types = append(w.Types, webhook.Type(t))
	}
	return w, err
}

// Webhook returns a tenant's webhook, including one that was removed lately.
func (x *hookTable) Webhook(tenant string, id webhook.ID) (Hook, bool) {
	x.progress.Lock()
	defer x.progress.Unlock()
	h, ok := x.hooks[hookSubject(tenant, id)]
	if !ok || h.doc.ID == "" {
		return Hook{}, false
	}
	return Hook{h.doc, h.cursor, h.redeliveries}, true
}

// SpansCursor returns the position in the catalog of processes up to which spans were exported. Its Rev
// is 0 before the first export.
func (x *hookTable) SpansCursor() webhook.Cursor {
	x.progress.Lock()
	defer x.progress.Unlock()
	if h, ok := x.hooks[hookSubject(SpansTenant, SpansID)]; ok {
		return h.cursor
	}
	return webhook.Cursor{}
}

// RemovedWebhooks counts a tenant's webhooks that were removed lately and are still in the
// log.
func (x *hookTable) RemovedWebhooks(tenant string) (n int) {
	x.progress.Lock()
	defer x.progress.Unlock()
	for _, h := range x.hooks {
		if h.doc.Tenant == tenant && h.doc.Removed {
			n++
		}
	}
	return n
}

// Webhooks returns the webhooks that keep accepts, oldest first, without removed ones.
func (x *hookTable) Webhooks(keep func(*Hook) bool) []Hook {
	x.progress.Lock()
	var out []Hook
	for _, h := range x.hooks {
		got := Hook{h.doc, h.cursor, h.redeliveries}
		if h.doc.ID != "" && !h.doc.Removed && keep(&got) {
			out = append(out, got)
		}
	}
	x.progress.Unlock()
	slices.SortFunc(out, func(a, b Hook) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})
	return out
}

// HookTotals are sums over webhooks.
type HookTotals struct {
	Attempts uint64 // requests sent
	Done     uint64 // events delivered
	GivenUp  uint64 // events whose last attempt failed
}

func (t *HookTotals) add(c *webhook.Cursor) {
	t.Attempts += c.Attempts
	t.Done += c.Done
	t.GivenUp += c.GivenUp
}

// HookTotals returns the sums over all webhooks that the view has had, including removed
// ones: they never shrink during the life of the view.
func (x *hookTable) HookTotals() HookTotals {
	x.progress.Lock()
	defer x.progress.Unlock()
	t := x.dropped
	for key, h := range x.hooks {
		if key != hookSubject(SpansTenant, SpansID) {
			t.add(&h.cursor)
		}
	}
	return t
}

// forget drops webhooks that were removed before a time. The view is locked.
func (x *hookTable) forget(before time.Time) {
	for key, h := range x.hooks {
		if h.doc.Removed && h.doc.Changed.Before(before) {
			x.dropped.add(&h.cursor)
			delete(x.hooks, key)
		}
	}
}

// sweepHooks removes webhooks from the log that were removed some time ago.
func (x *hookTable) sweepHooks(ctx context.Context, age time.Duration) (int, error) {
	return x.swept.Sweep(ctx, x.progress, streams.Hooks, age, func(subject string) bool {
		x.progress.Lock()
		defer x.progress.Unlock()
		h := x.hooks[hookKey(subject)]
		return h != nil && !h.doc.Removed
	})
}

// AppendAttempt appends a delivery to a webhook's log.
func (d *Documents) AppendAttempt(ctx context.Context, tenant string, id webhook.ID, a *webhook.Attempt) error {
	data, err := proto.Marshal(&pb.WebhookAttempt{
		Id: a.ID, EventId: a.EventID, Type: string(a.Type), Ref: refToPB(a.Ref), Number: a.Number,
		TimeNs: codec.Nanos(a.Time), TookNs: int64(a.Took), Url: a.URL, Status: a.Status, Error: a.Error, Response: a.Response, Last: a.Last,
		Events: uint32(a.Events),
	})
	if err != nil {
		return kind.Wrap(kind.Internal, "append delivery", a.ID, err)
	}
	return d.conn.PutLast(ctx, streams.HookLog, hookLogSubject(tenant, id), data)
}

func decodeAttempt(data []byte) (webhook.Attempt, error) {
	var b pb.WebhookAttempt
	if err := proto.Unmarshal(data, &b); err != nil {
		return webhook.Attempt{}, err
	}
	return webhook.Attempt{
		ID: b.Id, EventID: b.EventId, Type: webhook.Type(b.Type), Ref: refFromPB(b.Ref), Number: b.Number,
		Time: codec.Time(b.TimeNs), Took: time.Duration(b.TookNs), URL: b.Url, Status: b.Status, Error: b.Error, Response: b.Response, Last: b.Last,
		Events: int(b.Events),
	}, nil
}

// Attempts reads a webhook's deliveries from its log, newest or oldest first, until yield
// returns false. It begins after the delivery with stream sequence after; 0: at the first.
// yield gets the stream sequence of each.
func (d *Documents) Attempts(ctx context.Context, tenant string, id webhook.ID, after uint64, oldest bool, yield func(webhook.Attempt, uint64) bool) error {
	if !oldest {
		return attemptsBackwards(ctx, d.conn, hookLogSubject(tenant, id), after, yield)
	}
	for {
		msgs, err := d.conn.GetFrom(ctx, streams.HookLog, hookLogSubject(tenant, id), after+1, store.BatchSize)
		if err != nil || len(msgs) == 0 {
			return err
		}
		for _, m := range msgs {
			after = m.Seq
			if a, err := decodeAttempt(m.Data); err == nil && !yield(a, m.Seq) {
				return nil
			}
		}
	}
}

// attemptsBackwards reads the log backwards: each message is stored with the stream sequence of
// the one before it.
func attemptsBackwards(ctx context.Context, c *store.Conn, subject string, before uint64, yield func(webhook.Attempt, uint64) bool) error {
	req := store.GetRequest{Last: subject}
	if before > 0 {
		req = store.GetRequest{Seq: before}
	}
	for {
		got, err := c.DirectGet(ctx, streams.HookLog, req)
		if err != nil || len(got) == 0 || got[0].Subject != subject {
			return err
		}
		m := got[0]
		if a, err := decodeAttempt(m.Data); err == nil && m.Seq != before && !yield(a, m.Seq) {
			return nil
		}
		if m.After == 0 || m.After >= m.Seq {
			return nil
		}
		req = store.GetRequest{Seq: m.After}
	}
}
