package lives

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/events/internal/codec"
	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/process"
)

// Change reports that a process started, that it ended, or both.
type Change struct {
	Rev     uint64          // stream sequence of the entry in the catalog
	Process process.Summary // the entry, without the environment
	Started bool            // the process started, and the reader has not got that before, as far as known
	Ended   bool            // the process ended
}

// Cursor is the position of a reader. The zero value is the beginning of the catalog.
type Cursor struct {
	At uint64 // stream sequence up to which everything was read

	// since is the position from which the reader has read all entries as they were stored; valid if
	// live is set.
	since uint64
	live  bool
}

// Feed reads changes of processes. Its methods may be called concurrently.
type Feed struct {
	conn *store.Conn
	size int // of the window after it was shortened; it has at most twice as many entries

	mu      sync.Mutex
	running bool
	begin   uint64                // window has all entries after it
	end     uint64                // up to this one
	window  []entry               // only appended to, and copied when shortened
	started map[process.ID]uint64 // stream sequences of the first entries of running processes since Run began
	changed chan struct{}
}

// entry is an entry of the catalog.
type entry struct {
	rev   uint64
	first uint64 // stream sequence of the first entry that reported the start; 0: before the feed began
	sum   process.Summary
}

const windowSize = 4096

// readBatch is the maximum number of entries in a read from the log.
const readBatch = 1024

// New returns a feed of a log. It reads from the log alone until Run is called.
func New(conn *store.Conn) *Feed {
	return &Feed{conn: conn, size: windowSize, started: make(map[process.ID]uint64), changed: make(chan struct{})}
}

// Run follows the catalog until ctx ends, which is not an error.
func (f *Feed) Run(ctx context.Context) error {
	var end uint64
	for tries := 0; ; {
		var err error
		if end, err = f.conn.LastSeq(ctx, streams.Catalog); err == nil {
			break
		}
		if !f.conn.Backoff(ctx, &tries) {
			return nil
		}
	}
	feed, err := f.conn.Follow(streams.Catalog, ">", end)
	if err != nil {
		return store.Unavailable("follow processes", streams.Catalog, err)
	}
	defer feed.Close()
	f.mu.Lock()
	f.running, f.begin, f.end = true, end, end
	f.window, f.started = nil, make(map[process.ID]uint64) // of an earlier call: there is a hole after it
	f.notify()
	f.mu.Unlock()
	for {
		msgs, err := feed.Next(ctx, nil)
		if ctx.Err() != nil {
			return nil // the service ends
		}
		if err != nil {
			return err
		}
		f.add(msgs)
	}
}

// notify wakes up those that wait for changes. The feed is locked.
func (f *Feed) notify() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// Changed returns a channel that is closed at the next entry of the catalog.
func (f *Feed) Changed() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changed
}

// add adds stored messages to the window.
func (f *Feed) add(msgs []store.Message) {
	all := decode(f.conn, msgs)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range all {
		e.first = f.started[e.sum.ID]
		switch {
		case !e.sum.Active():
			delete(f.started, e.sum.ID)
		case e.first == 0 && !e.sum.Started.IsZero():
			e.first = e.rev
			f.started[e.sum.ID] = e.rev
		}
		f.window = append(f.window, e)
	}
	f.end = msgs[len(msgs)-1].Seq
	if n := len(f.window) - f.size; n > f.size {
		f.begin = f.window[n-1].rev
		f.window = slices.Clone(f.window[n:])
	}
	f.notify()
}

// decode decodes the entries of the catalog in messages, without their environment.
func decode(conn *store.Conn, msgs []store.Message) []entry {
	out := make([]entry, 0, len(msgs))
	for _, m := range msgs {
		if m.Subject == streams.CatalogTotals {
			continue
		}
		s, err := codec.DecodeSummary(m.Data)
		if err != nil {
			conn.Log().Warn("skip invalid message", "subject", m.Subject, "rev", m.Seq, "err", err)
			continue
		}
		out = append(out, entry{rev: m.Seq, sum: shortened(s)})
	}
	return out
}

// maxArgs is the maximum number of bytes of arguments in an entry.
const maxArgs = 4 << 10

// shortened returns an entry without what is secret or large.
func shortened(s process.Summary) process.Summary {
	s.Spec.Env, s.Spec.Sealed, s.Spec.Hidden, s.Spec.Confine, s.Spec.Redact = nil, "", "", nil, nil
	size := 0
	for i, a := range s.Spec.Args {
		if size += len(a); size > maxArgs {
			s.Spec.Args = slices.Clone(s.Spec.Args[:i])
			break
		}
	}
	return s
}

// change returns what an entry of the window reports to a reader.
func (c *Cursor) change(e *entry) Change {
	ch := Change{Rev: e.rev, Process: e.sum, Ended: !e.sum.Active()}
	switch {
	case e.sum.Started.IsZero():
	case ch.Ended:
		ch.Started = e.first <= c.since
	default:
		ch.Started = e.first == e.rev
	}
	return ch
}

// fromWindow moves c past the next changes that keep accepts, at most most of them, and returns them.
// ok is false if the window does not reach back to c.
func (f *Feed) fromWindow(c *Cursor, keep func(*process.Summary) bool, most int) (out []Change, ok bool) {
	f.mu.Lock()
	running, begin, end, all := f.running, f.begin, f.end, f.window
	f.mu.Unlock()
	if !running || c.At < begin {
		c.live = false
		return nil, false
	}
	if !c.live {
		c.since, c.live = c.At, true
	}
	i, _ := slices.BinarySearchFunc(all, c.At+1, func(e entry, rev uint64) int {
		if e.rev < rev {
			return -1
		}
		return 1
	})
	for ; i < len(all); i++ {
		e := &all[i]
		if !keep(&e.sum) {
			continue
		}
		if ch := c.change(e); ch.Started || ch.Ended {
			if len(out) == most {
				return out, true
			}
			out = append(out, ch)
		}
		c.At = e.rev
	}
	c.At = max(c.At, end)
	return out, true
}

// Skip moves c past the next changes that keep rejects, and reports whether there may be others after
// it. It does no I/O.
func (f *Feed) Skip(c *Cursor, keep func(*process.Summary) bool) (more bool) {
	next := *c
	found, ok := f.fromWindow(&next, keep, 1)
	if !ok {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.running
	}
	if len(found) == 0 {
		*c = next
	}
	return len(found) > 0
}

// Next moves c past the next changes that keep accepts, at most most of them, and returns them. It
// returns none if the log has no more at the time of the call.
func (f *Feed) Next(ctx context.Context, c *Cursor, keep func(*process.Summary) bool, most int) ([]Change, error) {
	for {
		if out, ok := f.fromWindow(c, keep, most); ok {
			return out, nil
		}
		out, more, err := f.fromLog(ctx, c, keep, most)
		if len(out) > 0 || !more || err != nil {
			return out, err
		}
	}
}

// fromLog is fromWindow for what the log has. more is false if that is all.
func (f *Feed) fromLog(ctx context.Context, c *Cursor, keep func(*process.Summary) bool, most int) (out []Change, more bool, err error) {
	f.mu.Lock()
	begin := f.begin
	f.mu.Unlock()
	msgs, err := f.conn.GetFrom(ctx, streams.Catalog, streams.SourceOf(streams.Catalog), c.At+1, readBatch)
	if err != nil {
		return nil, false, err
	}
	if len(msgs) == 0 { // the replica lags, or nothing is left: the leader decides
		m, ok, err := f.conn.RetryLeaderGet(ctx, streams.Catalog, store.GetRequest{Seq: c.At + 1, Next: streams.SourceOf(streams.Catalog)})
		if err != nil {
			return nil, false, err
		}
		if !ok {
			more, c.At = c.At < begin, max(c.At, begin)
			return nil, more, nil
		}
		msgs = []store.Message{m}
	}
	for _, e := range decode(f.conn, msgs) {
		s := &e.sum
		if s.Started.IsZero() && s.Active() || !keep(s) {
			continue
		}
		if len(out) == most {
			return out, true, nil
		}
		out = append(out, Change{Rev: e.rev, Process: *s, Started: !s.Started.IsZero(), Ended: !s.Active()})
		c.At = e.rev
	}
	c.At = msgs[len(msgs)-1].Seq
	return out, true, nil
}

// End returns the stream sequence of the last entry of the catalog.
func (f *Feed) End(ctx context.Context) (uint64, error) {
	end, err := f.conn.LastSeq(ctx, streams.Catalog)
	return end, store.Unavailable("read", streams.Catalog, err)
}

// Before returns the position before the first entry that was stored at or after a time.
func (f *Feed) Before(ctx context.Context, since time.Time) (uint64, error) {
	end, err := f.End(ctx)
	if err != nil {
		return 0, err
	}
	got, err := f.conn.DirectGet(ctx, streams.Catalog, store.GetRequest{Next: streams.SourceOf(streams.Catalog), StartTime: &since, Batch: 1})
	if err != nil || len(got) == 0 {
		return end, err
	}
	return got[0].Seq - 1, nil
}
