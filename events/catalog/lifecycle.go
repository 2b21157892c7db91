package catalog

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/events/internal/codec"
	"github.com/millrace/millrace/events/internal/fold"
	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/webhook"
)

// LifecycleAge is how long the lifecycle events of sandboxes can be listed and delivered.
const LifecycleAge = streams.LifecycleAge

// mark is the position and the type of a lifecycle event. It is all that a view stores of
// the event; the record has the rest.
type mark uint64

const typeBits = 4

func markOf(p webhook.Position, t webhook.Type) mark {
	return mark(uint64(p)<<typeBits | uint64(slices.Index(webhook.Types(), t)))
}

func (m mark) position() webhook.Position { return webhook.Position(m >> typeBits) }

func (m mark) eventType() webhook.Type { return webhook.Types()[m&(1<<typeBits-1)] }

// lifecycleTable is the part of a view that lists lifecycle events.
type lifecycleTable struct {
	conn      *store.Conn
	progress  *fold.Progress
	lifecycle lifecycles
}

func newLifecycleTable(conn *store.Conn, p *fold.Progress) *lifecycleTable {
	return &lifecycleTable{conn: conn, progress: p, lifecycle: lifecycles{of: make(map[string][]mark)}}
}

// lifecycles holds the marks of all tenants. It is guarded by the view's lock.
type lifecycles struct {
	of     map[string][]mark // by tenant, in order
	stamps []stamp           // at most one per hour
}

// stamp is the time at which a message was stored.
type stamp struct {
	at  time.Time
	rev uint64
}

const stampEvery = time.Hour

// add adds an event that was stored at a time, unless it is too old by now.
func (x *lifecycles) add(tenant string, p webhook.Position, t webhook.Type, at, now time.Time) {
	if now.Sub(at) > LifecycleAge {
		return
	}
	x.of[tenant] = append(x.of[tenant], markOf(p, t))
	if n := len(x.stamps); n == 0 || at.Sub(x.stamps[n-1].at) >= stampEvery {
		x.stamps = append(x.stamps, stamp{at, p.Rev()})
	}
}

// forget drops the marks of messages stored before a time, to the hour.
func (x *lifecycles) forget(before time.Time) {
	n, _ := slices.BinarySearchFunc(x.stamps, before, func(s stamp, t time.Time) int { return s.at.Compare(t) })
	if n < 2 {
		return // the hour before the first remaining stamp has not ended
	}
	first := markOf(webhook.At(x.stamps[n-1].rev, 0), webhook.Types()[0])
	x.stamps = slices.Delete(x.stamps, 0, n-1)
	for tenant, all := range x.of {
		i, _ := slices.BinarySearch(all, first)
		if i == len(all) {
			delete(x.of, tenant)
		} else if i > 0 {
			x.of[tenant] = slices.Clone(all[i:]) // frees the memory of the others
		}
	}
}

// LifecyclePage returns the positions of a page of a tenant's lifecycle events: at most
// limit of those that keep accepts, after the first offset of them, oldest or newest first.
func (t *lifecycleTable) LifecyclePage(tenant string, keep func(webhook.Type) bool, offset, limit int, oldest bool) []webhook.Position {
	t.progress.Lock()
	all := t.lifecycle.of[tenant] // only appended to, and copied when shortened
	t.progress.Unlock()
	var out []webhook.Position
	for i := range all {
		m := all[i]
		if !oldest {
			m = all[len(all)-1-i]
		}
		if !keep(m.eventType()) {
			continue
		}
		if offset > 0 {
			offset--
			continue
		}
		if out = append(out, m.position()); len(out) == limit {
			break
		}
	}
	return out
}

// LifecycleAfter returns the positions of a tenant's next lifecycle events that keep
// accepts, at most most of them, oldest first.
func (t *lifecycleTable) LifecycleAfter(tenant string, after webhook.Position, keep func(webhook.Type) bool, most int) []webhook.Position {
	var out []webhook.Position
	for _, m := range t.marksAfter(tenant, after) {
		if len(out) == most {
			break
		}
		if keep(m.eventType()) {
			out = append(out, m.position())
		}
	}
	return out
}

// LifecycleLag counts a tenant's lifecycle events after a position that keep accepts.
func (t *lifecycleTable) LifecycleLag(tenant string, after webhook.Position, keep func(webhook.Type) bool) int {
	n := 0
	for _, m := range t.marksAfter(tenant, after) {
		if keep(m.eventType()) {
			n++
		}
	}
	return n
}

func (t *lifecycleTable) marksAfter(tenant string, after webhook.Position) []mark {
	t.progress.Lock()
	all := t.lifecycle.of[tenant]
	t.progress.Unlock()
	i, _ := slices.BinarySearch(all, markOf(after+1, webhook.Types()[0]))
	return all[i:]
}

// LifecycleEvents reads a tenant's lifecycle events at the given positions, in their order.
// It omits events that have left the log.
func (d *Documents) LifecycleEvents(ctx context.Context, tenant string, at []webhook.Position) ([]webhook.Event, error) {
	ids := make([]sandbox.ID, len(at))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(lifecycleReads)
	for i, p := range at {
		g.Go(func() (err error) {
			ids[i], err = sandboxAt(gctx, d.conn, tenant, p.Rev())
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	last := make(map[sandbox.ID]webhook.Position)
	for i, id := range ids {
		last[id] = max(last[id], at[i])
	}
	delete(last, "") // events that have left the log
	found := make([]map[webhook.Position]webhook.Event, 0, len(last))
	g, gctx = errgroup.WithContext(ctx)
	g.SetLimit(lifecycleReads)
	for id, until := range last {
		wanted := make(map[webhook.Position]webhook.Event)
		found = append(found, wanted)
		g.Go(func() error {
			return d.lifecycleOf(gctx, tenant, id, until.Rev(), func(e webhook.Event) bool {
				if slices.Contains(at, e.Ref.Position) {
					wanted[e.Ref.Position] = e
				}
				return true
			})
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return inOrder(at, found), nil
}

// lifecycleReads is how many records are read concurrently for a page.
const lifecycleReads = 8

func inOrder(at []webhook.Position, found []map[webhook.Position]webhook.Event) []webhook.Event {
	out := make([]webhook.Event, 0, len(at))
	for _, p := range at {
		for _, some := range found {
			if e, ok := some[p]; ok {
				out = append(out, e)
				break
			}
		}
	}
	return out
}

// sandboxAt returns the sandbox whose record has the message; empty if the message is gone.
func sandboxAt(ctx context.Context, c *store.Conn, tenant string, rev uint64) (sandbox.ID, error) {
	m, ok, err := c.ReadOne(ctx, streams.Sandboxes, store.GetRequest{Seq: rev})
	if err != nil || !ok {
		return "", err
	}
	return ofTenant(m, tenant), nil
}

func ofTenant(m store.Message, tenant string) sandbox.ID {
	id := sandbox.ID(lastToken(m.Subject))
	if m.Subject != sandboxSubject(tenant, id) {
		return ""
	}
	return id
}

// SandboxLifecycle reads the lifecycle events of a tenant's sandbox, oldest first, until
// yield returns false. It returns NotFound if the log has no such sandbox.
func (d *Documents) SandboxLifecycle(ctx context.Context, tenant string, id sandbox.ID, yield func(webhook.Event) bool) error {
	m, ok, err := d.conn.LastOf(ctx, streams.Sandboxes, sandboxSubject(tenant, id))
	if err != nil {
		return err
	}
	if !ok {
		return kind.New(kind.NotFound, "read lifecycle", string(id), "sandbox not found")
	}
	return d.lifecycleOf(ctx, tenant, id, m.Seq, yield)
}

// lifecycleOf folds a sandbox's record up to the message with stream sequence until, one
// batch at a time.
func (d *Documents) lifecycleOf(ctx context.Context, tenant string, id sandbox.ID, until uint64, yield func(webhook.Event) bool) error {
	var f webhook.Fold
	f.State.ID, f.State.Tenant = id, tenant
	subject := sandboxSubject(tenant, id)
	for rev := uint64(0); rev < until; {
		msgs, err := d.conn.GetFrom(ctx, streams.Sandboxes, subject, rev+1, store.BatchSize)
		if err != nil {
			return err
		}
		if len(msgs) == 0 { // the replica lags, or nothing is left: the leader decides
			m, ok, err := d.conn.RetryLeaderGet(ctx, streams.Sandboxes, store.GetRequest{Seq: rev + 1, Next: subject})
			if err != nil || !ok {
				return err
			}
			msgs = []store.Message{m}
		}
		for _, m := range msgs {
			if rev = m.Seq; rev > until {
				return nil
			}
			if !apply(&f, m, yield) {
				return nil
			}
		}
	}
	return nil
}

// apply folds a message. It returns false once yield does.
func apply(f *webhook.Fold, m store.Message, yield func(webhook.Event) bool) bool {
	_, _, all, err := codec.DecodeSandbox(m.Data)
	if err != nil {
		return true // the view skipped it, too
	}
	for i, e := range all {
		if out, ok := f.Apply(e, webhook.At(m.Seq, i)); ok && !yield(out) {
			return false
		}
	}
	return true
}

// FirstSince returns the position before the first event of a tenant's sandboxes that was
// stored at or after a time; without such an event, the last position of the view.
func (t *lifecycleTable) FirstSince(ctx context.Context, tenant string, since time.Time) (webhook.Position, error) {
	end := t.progress.Rev(streams.Sandboxes)
	got, err := t.conn.DirectGet(ctx, streams.Sandboxes, store.GetRequest{Next: sandboxSubject(tenant, "*"), StartTime: &since, Batch: 1})
	if err != nil || len(got) == 0 {
		return webhook.Through(end), err
	}
	return webhook.Through(got[0].Seq - 1), nil
}
