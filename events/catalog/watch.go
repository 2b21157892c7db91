package catalog

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/events/internal/codec"
	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
)

// TailFilter selects records for an operator. The zero value of a field matches all.
type TailFilter struct {
	Tenant  string
	Sandbox sandbox.ID
	Process process.ID
	Since   time.Time // zero: from now on if Follow, otherwise everything stored
	Follow  bool      // continue with new events
}

// TailEvent is one event of some record: Process or Sandbox is set.
type TailEvent struct {
	Stream  string // "process" or "sandbox"
	Rev     uint64 // stream sequence of its message
	Tenant  string // empty if the sandbox is unknown
	Sandbox sandbox.ID
	ID      process.ID // of a process's event
	Host    string     // of a process's event
	Process *process.Event
	Change  *sandbox.Event
}

// Tail calls fn for the events of all records that match f, those of one record in order.
// It ends when ctx ends, when fn fails, or, without Follow, after everything stored at the
// call. It reads whole streams: it is for operators, not for clients of one process.
func (v *View) Tail(ctx context.Context, f TailFilter, fn func(TailEvent) error) error {
	g, ctx := errgroup.WithContext(ctx)
	found := make(chan TailEvent, 64)
	names := []string{streams.Sandboxes}
	for i := range v.conn.Shards() {
		names = append(names, streams.Out(i))
	}
	var readers errgroup.Group
	for _, s := range names {
		readers.Go(func() error { return v.tailStream(ctx, s, f, found) })
	}
	g.Go(func() error {
		defer close(found)
		return readers.Wait()
	})
	g.Go(func() error {
		for e := range found {
			if err := fn(e); err != nil {
				return err
			}
		}
		return nil
	})
	return g.Wait()
}

// tailStream sends a stream's matching events.
func (v *View) tailStream(ctx context.Context, stream string, f TailFilter, found chan<- TailEvent) error {
	end, err := v.conn.LastSeq(ctx, stream)
	if err != nil {
		return err
	}
	var from uint64
	if f.Follow && f.Since.IsZero() {
		from = end
	}
	feed, err := v.conn.Follow(stream, ">", from)
	if err != nil {
		return store.Unavailable("tail", stream, err)
	}
	defer feed.Close()
	feed.Since(f.Since)
	// Without Follow, a feed without further messages is at the end, however little of the
	// stream is after Since.
	var quiet <-chan time.Time
	if !f.Follow {
		t := time.NewTimer(quietEnd)
		defer t.Stop()
		quiet = t.C
	}
	for f.Follow || feed.Last() < end {
		msgs, err := feed.Next(ctx, quiet)
		if err != nil || len(msgs) == 0 {
			return err
		}
		for _, m := range msgs {
			if err := v.match(ctx, stream, m, f, found); err != nil {
				return err
			}
		}
	}
	return nil
}

// quietEnd bounds how long a Tail without Follow waits for a stream without matching
// messages.
const quietEnd = time.Second

// match sends a message's matching events.
func (v *View) match(ctx context.Context, stream string, m store.Message, f TailFilter, found chan<- TailEvent) error {
	events, err := v.explain(stream, m)
	if err != nil {
		v.conn.Log().Warn("skip invalid message", "subject", m.Subject, "rev", m.Seq, "err", err)
		return nil
	}
	for _, e := range events {
		if f.Tenant != "" && e.Tenant != f.Tenant || f.Sandbox != "" && e.Sandbox != f.Sandbox ||
			f.Process != "" && e.ID != f.Process || !f.Since.IsZero() && e.time().Before(f.Since) {
			continue
		}
		select {
		case found <- e:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (e *TailEvent) time() time.Time {
	if e.Process != nil {
		return e.Process.Time
	}
	return e.Change.Time
}

// explain decodes a message into its events.
func (v *View) explain(stream string, m store.Message) ([]TailEvent, error) {
	var out []TailEvent
	if stream == streams.Sandboxes {
		tenant, id, events, err := codec.DecodeSandbox(m.Data)
		for i := range events {
			out = append(out, TailEvent{Stream: "sandbox", Rev: m.Seq, Tenant: tenant, Sandbox: id, Change: &events[i]})
		}
		return out, err
	}
	b, err := codec.ParseBatch(m.Data)
	if err != nil {
		return nil, err
	}
	id, err := process.ParseID(b.Process + "-" + b.Sandbox)
	if err != nil {
		return nil, err
	}
	s, _ := v.Sandbox(id.Sandbox())
	for i := range b.Events {
		out = append(out, TailEvent{
			Stream: "process", Rev: m.Seq, Tenant: s.Tenant, Sandbox: id.Sandbox(), ID: id, Host: b.Host, Process: &b.Events[i],
		})
	}
	return out, nil
}
