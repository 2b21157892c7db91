package tokens

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/bootstrap"
	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/meter"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/record"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/usage"
)

// Config configures a Counter. All fields are required.
type Config struct {
	Log      *events.Log
	View     *catalog.View // of Log
	Slog     *slog.Logger
	Interval time.Duration // between two passes
}

const (
	stepTimeout = 10 * time.Second // of what is stored of one conversation
	idle        = 50 * time.Millisecond
	maxBatches  = 256 // that are read of one conversation in one pass
)

// Counter counts what agents report. It belongs to one goroutine.
type Counter struct {
	cfg     Config
	meter   *meter.Store
	cursors map[sandbox.ID]*cursor // of sandboxes that are not done
	done    map[sandbox.ID]bool    // sandboxes whose records were read to their ends
	opened  map[sandbox.ID]bool    // sandboxes whose conversation has a fact
}

// New returns a Counter. It does no I/O.
func New(cfg Config) *Counter {
	return &Counter{
		cfg: cfg, meter: cfg.Log.Meter(),
		cursors: make(map[sandbox.ID]*cursor), done: make(map[sandbox.ID]bool), opened: make(map[sandbox.ID]bool),
	}
}

// Run counts until ctx ends.
func (c *Counter) Run(ctx context.Context) {
	t := time.NewTicker(c.cfg.Interval)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if err := c.pass(ctx); err != nil && ctx.Err() == nil {
			c.cfg.Slog.Warn("count tokens failed", "err", err)
		}
	}
}

func conversationOf(s *sandbox.State) string {
	if s.Started.IsZero() {
		return ""
	}
	return s.Request.E2A.Persistence.Conversation
}

// Conversations returns the conversations with a sandbox in a view.
func Conversations(view *catalog.View) map[string]bool {
	out := make(map[string]bool)
	view.Sandboxes(func(s *sandbox.State) bool {
		if id := conversationOf(s); id != "" {
			out[id] = true
		}
		return false
	})
	return out
}

// part is a sandbox of a conversation.
type part struct {
	sandbox.State
	runtime process.Summary
	exists  bool // runtime does
}

func (p *part) generation() uint32 { return p.Request.E2A.Persistence.Generation }

// pass counts what is new in all conversations.
func (c *Counter) pass(ctx context.Context) (first error) {
	known := make(map[sandbox.ID]bool)
	all := c.cfg.View.Sandboxes(func(s *sandbox.State) bool {
		known[s.ID] = true
		return conversationOf(s) != ""
	})
	forget(c.cursors, known)
	forget(c.done, known)
	forget(c.opened, known)
	talks := make(map[string][]*part)
	ids := make(map[string][]process.ID) // of the runtimes, by host
	for i := range all {
		s := &all[i]
		if c.done[s.ID] {
			continue
		}
		p := &part{State: *s}
		if p.runtime, p.exists = c.cfg.View.FirstHelper(s.ID, bootstrap.Tag); p.exists {
			ids[p.runtime.Host] = append(ids[p.runtime.Host], p.runtime.ID)
		}
		of := s.Tenant + " " + conversationOf(s)
		talks[of] = append(talks[of], p)
	}
	tails := make(map[process.ID]record.Tail)
	for host, of := range ids {
		got, err := c.cfg.Log.LoadTails(ctx, host, of)
		if err != nil {
			return err
		}
		maps.Copy(tails, got)
	}
	for _, parts := range talks {
		if err := c.count(ctx, parts, tails); err != nil && first == nil {
			first = err
		}
	}
	return first
}

func forget[V any](m map[sandbox.ID]V, known map[sandbox.ID]bool) {
	maps.DeleteFunc(m, func(id sandbox.ID, _ V) bool { return !known[id] })
}

// count counts what is new in the sandboxes of one conversation that are not done.
func (c *Counter) count(ctx context.Context, parts []*part, tails map[process.ID]record.Tail) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	slices.SortFunc(parts, func(a, b *part) int { return cmp.Compare(a.generation(), b.generation()) })
	for _, p := range parts {
		if err := c.open(ctx, p); err != nil {
			return err
		}
		tail, ok := tails[p.runtime.ID]
		switch cur := c.cursors[p.ID]; {
		case !p.exists && !p.Over(), ok && cur != nil && tail.Last <= cur.after:
			return nil // later sandboxes wait for the end of this one
		case !p.exists:
			c.done[p.ID] = true
			continue
		}
		over, err := c.read(ctx, p, tail.Last)
		if err != nil || !over && (ok || p.runtime.Active()) {
			return err
		}
		c.done[p.ID] = true
		delete(c.cursors, p.ID)
	}
	return nil
}

// open makes sure that the conversation of a sandbox has a fact that has not ended.
func (c *Counter) open(ctx context.Context, p *part) error {
	if c.opened[p.ID] {
		return nil
	}
	id := conversationOf(&p.State)
	_, err := c.meter.Change(ctx, p.Tenant, id, func(f usage.Fact, ok bool) (usage.Fact, bool) {
		if !ok {
			return usage.New(p.Tenant, id, usage.Conversation, p.Started), true
		}
		return f.Reopen(), f.Over()
	})
	c.opened[p.ID] = err == nil
	return err
}

// read counts what is new in the record of a sandbox's runtime, and reports whether that is its end. last is
// the last event that the record is known to have.
func (c *Counter) read(ctx context.Context, p *part, last process.Seq) (over bool, err error) {
	id := conversationOf(&p.State)
	f, ok, err := c.meter.Read(ctx, p.Tenant, id)
	switch {
	case err != nil:
		return false, err
	case !ok:
		delete(c.opened, p.ID)
		return false, nil
	case f.Counted.Generation > p.generation():
		return true, nil
	}
	cur := c.cursors[p.ID]
	if cur == nil || cur.counted != f.Counted {
		cur = cursorAt(f.Counted, p.generation())
	}
	delete(c.cursors, p.ID) // after a failure, the next pass begins at the fact
	sum, to, over, err := c.scan(ctx, cur, record.Ref{Host: p.runtime.Host, ID: p.runtime.ID}, last)
	if err != nil {
		return false, err
	}
	if to.Offset > 0 {
		to.Generation = p.generation()
		from := cur.counted
		f, err = c.meter.Change(ctx, p.Tenant, id, func(f usage.Fact, ok bool) (usage.Fact, bool) {
			return f.Count(to, time.Now(), sum), ok && f.Counted == from
		})
		if err != nil || f.Counted != to {
			return false, err // another reaper was first
		}
		cur.counted = to
	}
	c.cursors[p.ID] = cur
	return over, nil
}

// scan moves a cursor on, to last or a later event. It returns what was reported, and the position behind it.
func (c *Counter) scan(ctx context.Context, cur *cursor, ref record.Ref, last process.Seq) (sum usage.Counters, to usage.Position, over bool, err error) {
	r := c.cfg.Log.Read(ref, cur.after)
	defer func() { r.Close() }()
	for range maxBatches {
		batch, err := r.Next(ctx, idle)
		if first, ok := record.FirstSeq(err); ok && first > r.After()+1 { // retention dropped the beginning
			r.Close()
			r = c.cfg.Log.Read(ref, first-1)
			continue
		}
		for i := range batch {
			got, offset := cur.add(&batch[i])
			if offset > 0 {
				sum, to = sum.Add(got), usage.Position{After: batch[i].Seq - 1, Offset: offset}
			}
			if _, over = batch[i].Body.(process.Finished); over {
				return sum, to, true, nil
			}
		}
		switch {
		case errors.Is(err, io.EOF), kind.Is(err, kind.Gone), kind.Is(err, kind.NotFound):
			return sum, to, true, nil
		case err != nil:
			return sum, to, false, err
		case len(batch) == 0, last > 0 && cur.after >= last:
			return sum, to, false, nil
		}
	}
	return sum, to, false, nil
}
