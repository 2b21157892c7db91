package catalog

import (
	"context"

	"github.com/millrace/millrace/events/internal/codec"
	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/webhook"
)

// SandboxEvent is an event of a sandbox's record with its place among those of all sandboxes.
type SandboxEvent struct {
	Position webhook.Position
	Event    sandbox.Event
	State    sandbox.State // of the sandbox, not older than the event
}

// SandboxLog reads the events of sandboxes, as far as a view has their sandboxes.
type SandboxLog struct{ View *View }

// SandboxesRev is [View.SandboxesRev].
func (l SandboxLog) SandboxesRev() uint64 { return l.View.SandboxesRev() }

// FollowSandboxes follows the events of sandboxes that are stored after a stream sequence, until
// ctx ends or the log is closed. For each batch it calls begin, which returns whether the events of
// a tenant are wanted, and then add with those events, in order, and the stream sequence of the
// last one in the batch, wanted or not.
func (l SandboxLog) FollowSandboxes(ctx context.Context, after uint64, begin func() (wanted func(tenant string) bool), add func(all []SandboxEvent, rev uint64)) error {
	feed, err := l.View.conn.Follow(streams.Sandboxes, ">", after)
	if err != nil {
		return store.Unavailable("follow sandboxes", streams.Sandboxes, err)
	}
	defer feed.Close()
	for {
		msgs, err := feed.Next(ctx, nil)
		if err != nil {
			return store.Unavailable("follow sandboxes", streams.Sandboxes, err)
		}
		all, err := l.decode(ctx, msgs, begin())
		if err != nil {
			return err
		}
		add(all, msgs[len(msgs)-1].Seq)
	}
}

// SandboxEvents reads the next events of a tenant's sandboxes after a position, up to a stream
// sequence, and returns the position up to which it has read. It omits sandboxes that have left
// the view.
func (l SandboxLog) SandboxEvents(ctx context.Context, tenant string, after webhook.Position, until uint64) ([]SandboxEvent, webhook.Position, error) {
	subject := sandboxSubject(tenant, "*")
	from := max(after.Rev(), 1) // the message at the position may have events after it
	msgs, err := l.View.conn.GetFrom(ctx, streams.Sandboxes, subject, from, store.BatchSize)
	if err != nil {
		return nil, after, kind.Wrap(kind.Unavailable, "read sandboxes", "", err)
	}
	if len(msgs) == 0 || msgs[len(msgs)-1].Seq <= after.Rev() { // the replica lags, or nothing is left: the leader decides
		m, ok, err := l.View.conn.RetryLeaderGet(ctx, streams.Sandboxes, store.GetRequest{Seq: after.Rev() + 1, Next: subject})
		if err != nil {
			return nil, after, kind.Wrap(kind.Unavailable, "read sandboxes", "", err)
		}
		if !ok {
			return nil, webhook.Through(until), nil
		}
		msgs = append(msgs, m)
	}
	for len(msgs) > 0 && msgs[len(msgs)-1].Seq > until {
		msgs = msgs[:len(msgs)-1]
	}
	read := webhook.Through(until)
	if len(msgs) == 0 {
		return nil, read, nil
	}
	if last := msgs[len(msgs)-1].Seq; last > after.Rev() {
		read = webhook.Through(last)
	}
	all, err := l.decode(ctx, msgs, func(string) bool { return true })
	for len(all) > 0 && all[0].Position <= after {
		all = all[1:]
	}
	return all, read, err
}

// decode decodes the messages of tenants for which wanted returns true, and waits until the
// view has them.
func (l SandboxLog) decode(ctx context.Context, msgs []store.Message, wanted func(tenant string) bool) ([]SandboxEvent, error) {
	var out []SandboxEvent
	last := msgs[len(msgs)-1].Seq
	for _, m := range msgs {
		tenant, ok := tenantOf(m.Subject)
		if !ok || !wanted(tenant) {
			continue
		}
		_, id, events, err := codec.DecodeSandbox(m.Data)
		if err != nil {
			continue // the view has logged it
		}
		if err := l.View.progress.Wait(ctx, func() bool { return l.View.progress.LockedRev(streams.Sandboxes) >= last }); err != nil {
			return nil, err
		}
		st, ok := l.View.Sandbox(id)
		for i := range events {
			if ok {
				out = append(out, SandboxEvent{webhook.At(m.Seq, i), events[i], st})
			}
		}
	}
	return out, nil
}
