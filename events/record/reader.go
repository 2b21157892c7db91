package record

import (
	"context"
	"io"
	"slices"
	"time"

	"github.com/millrace/millrace/events/internal/codec"
	"github.com/millrace/millrace/events/internal/observe"
	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
)

// Reader yields one record's events in order, each once. It belongs to one goroutine. All
// readers of a process share one subscription.
type Reader struct {
	t      *liveTail
	err    error    // why the reader has no tail
	at     position // after the last event returned; rev 0: its message is unknown
	fin    bool
	live   bool            // start at the live end
	ahead  []store.Message // read from the store but not returned, after at
	batch  int             // size of the next read from the store
	tries  int             // consecutive reads that failed
	misses int             // consecutive reads that found nothing where a message must exist
	timer  *time.Timer
	closed bool

	until   process.Seq // last event to return; 0: no limit
	catalog Catalog     // nil: Next waits for none
}

// Catalog shows the state of processes to clients.
type Catalog interface {
	// AwaitShown waits until the catalog shows what the events of a process report.
	AwaitShown(ctx context.Context, id process.ID, evs []process.Event)
}

// ShownBy makes Next return each event only when the catalog shows it, and returns r.
func (r *Reader) ShownBy(c Catalog) *Reader {
	r.catalog = c
	return r
}

// Until makes the record end for the reader after the event with the given seq (0: no limit), and
// returns r.
func (r *Reader) Until(last process.Seq) *Reader {
	r.until = last
	return r
}

// A reader that begins or resumes needs its first event soon, one that is far behind needs
// many: reads from the store grow from firstBatch to BatchSize.
const firstBatch = 4

// Read returns a reader of the events after the given seq (0: from the first). It attaches
// to the live end before it returns. If the record has no event yet, the reader waits for
// the first.
func (l *Records) Read(ref Ref, after process.Seq) *Reader {
	t, err := l.attach(ref, false)
	return &Reader{t: t, err: err, at: position{seq: after}}
}

// ReadNew is Read from the first event for a process whose id was made a moment ago: no event was
// stored before the call. It reads nothing from the store.
func (l *Records) ReadNew(ref Ref) *Reader {
	t, err := l.attach(ref, true)
	return &Reader{t: t, err: err}
}

// ReadLive returns a reader of the events stored from now on.
func (l *Records) ReadLive(ref Ref) *Reader {
	r := l.Read(ref, 0)
	r.live = true
	return r
}

// After returns the seq of the last event returned, at which a later Read resumes.
func (r *Reader) After() process.Seq { return r.at.seq }

// Close releases the subscription. Next must not be called again.
func (r *Reader) Close() {
	if r.closed {
		return
	}
	r.closed = true
	if r.timer != nil {
		r.timer.Stop()
	}
	if r.t != nil {
		r.t.detach()
	}
}

// Next waits for the next events and returns those available, at least one. If none arrives
// within idle (0: no limit), it returns an empty batch. The events' memory is shared
// between readers and must not be changed. io.EOF follows Finished.
//
// Errors: kind.Gone if the events right after the reader's position fell out of retention
// (FirstSeq returns the first one left); kind.Invalid if the position is past the end of a
// finished record; ctx's error; kind.Unavailable if the log was closed. A hole that no
// replica can fill is a process.Gap in the batch.
func (r *Reader) Next(ctx context.Context, idle time.Duration) ([]process.Event, error) {
	if r.err != nil {
		return nil, r.err
	}
	if r.fin || r.until != 0 && r.at.seq >= r.until && !r.live {
		return nil, io.EOF
	}
	quiet := r.quiet(idle)
	for {
		got, wait, err := r.step(ctx)
		if r.until != 0 {
			if got = r.allowed(got); len(got) == 0 && r.at.seq >= r.until && err == nil {
				return nil, io.EOF
			}
		}
		if err != nil || len(got) > 0 {
			if r.catalog != nil {
				r.catalog.AwaitShown(ctx, r.t.ref.ID, got)
			}
			return r.markEnd(got), err
		}
		if wait == nil {
			continue
		}
		select {
		case <-wait:
		case <-quiet:
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// allowed returns the events up to the last one that the reader returns.
func (r *Reader) allowed(events []process.Event) []process.Event {
	n := len(events)
	for n > 0 && events[n-1].Seq > r.until {
		n--
	}
	return events[:n]
}

// quiet starts the reader's timer; a nil channel waits for ever.
func (r *Reader) quiet(idle time.Duration) <-chan time.Time {
	if idle <= 0 {
		return nil
	}
	if r.timer == nil {
		r.timer = time.NewTimer(idle)
	} else {
		r.timer.Reset(idle)
	}
	return r.timer.C
}

// markEnd remembers whether the record ended.
func (r *Reader) markEnd(events []process.Event) []process.Event {
	if n := len(events); n > 0 {
		_, r.fin = events[n-1].Body.(process.Finished)
	}
	return events
}

// step returns the events available, or a channel to wait on, or neither: then it must be
// called again.
func (r *Reader) step(ctx context.Context) ([]process.Event, <-chan struct{}, error) {
	t := r.t
	t.mu.Lock()
	if !t.synced && t.err == nil {
		defer t.mu.Unlock()
		return nil, t.changed, nil
	}
	if r.live && t.synced {
		r.live, r.at = false, position{seq: t.last}
	}
	switch {
	case r.at.seq < t.base.seq:
		base := t.base
		t.mu.Unlock()
		begin := time.Now()
		got, err := r.fromStore(ctx, base)
		if err == nil {
			observe.Since(t.l.conn.To.Replay, begin)
		}
		return got, nil, err
	case r.at.seq < t.last:
		defer t.mu.Unlock()
		return r.fromRecent(), nil, nil
	}
	defer t.mu.Unlock()
	switch {
	case t.fin && r.at.seq > t.last:
		return nil, nil, kind.Newf(kind.Invalid, "read", string(t.ref.ID), "the record ended at %d", t.last)
	case t.fin:
		return nil, nil, io.EOF
	case t.err != nil:
		return nil, nil, store.Unavailable("read", string(t.ref.ID), t.err)
	}
	return nil, t.changed, nil
}

// fromRecent returns the tail's events after the reader's position, those of one message or
// of several short ones. The tail is locked.
func (r *Reader) fromRecent() []process.Event {
	r.ahead = nil
	recent := r.t.recent
	i := searchChunk(recent, r.at.seq+1)
	c := &recent[i]
	events := after(c.events, r.at.seq)
	r.at = c.position
	if i+1 == len(recent) {
		return events
	}
	out := append(make([]process.Event, 0, len(events)+8), events...)
	for size := c.size; i+1 < len(recent) && size < MaxBatch; size += recent[i].size {
		i++
		out = append(out, recent[i].events...)
		r.at = recent[i].position
	}
	return out
}

// searchChunk returns the index of the chunk that carries seq, or of the first one after
// it.
func searchChunk(chunks []chunk, seq process.Seq) int {
	lo, hi := 0, len(chunks)-1
	for lo < hi {
		if mid := (lo + hi) / 2; chunks[mid].seq < seq {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// after returns the events whose seq is greater.
func after(events []process.Event, seq process.Seq) []process.Event {
	for len(events) > 0 && events[0].Seq <= seq {
		events = events[1:]
	}
	return clip(events, seq)
}

// clip shortens a leading gap that begins at or before seq. It changes a copy, because the
// events may be shared.
func clip(events []process.Event, seq process.Seq) []process.Event {
	if len(events) == 0 {
		return nil
	}
	g, ok := events[0].Body.(process.Gap)
	if !ok || g.From > seq {
		return events
	}
	events = slices.Clone(events)
	g.From = seq + 1
	events[0].Body = g
	return events
}

// fromStore reads stored events after the reader's position and up to base.
func (r *Reader) fromStore(ctx context.Context, base position) ([]process.Event, error) {
	t := r.t
	if r.at.rev == 0 && r.at.seq > 0 {
		rev, err := t.l.seek(ctx, t.stream, t.subject, r.at.seq+1)
		if err != nil {
			return nil, err
		}
		r.at.rev = rev - 1
	}
	msgs, err := r.ahead, error(nil)
	if len(msgs) == 0 {
		msgs, err = r.fetch(ctx, base)
	}
	if err != nil && len(msgs) == 0 {
		if kind.Is(err, kind.Unavailable) && t.l.conn.Backoff(ctx, &r.tries) {
			return nil, nil // the store is unavailable: the reader waits instead of failing
		}
		return nil, err
	}
	if len(msgs) == 0 {
		return r.missed(ctx)
	}
	r.misses, r.tries = 0, 0
	r.ahead = nil
	var out []process.Event
	for i, size := 0, 0; i < len(msgs); i++ {
		if size > store.BatchBytes { // they were compressed
			r.ahead = msgs[i:]
			break
		}
		m := msgs[i]
		if r.at.rev == 0 {
			if err := r.checkFirst(m); err != nil {
				return nil, err
			}
		}
		chunks, ok := t.l.decode(ctx, t.ref, r.at.seq, m)
		if !ok {
			r.at.rev = m.Seq
			continue
		}
		for _, c := range chunks {
			out = append(out, c.events...)
			r.at = c.position
			size += c.size
		}
	}
	return out, nil
}

// fetch reads the next messages.
func (r *Reader) fetch(ctx context.Context, base position) ([]store.Message, error) {
	t := r.t
	if sparse(r.at, base) {
		if got, whole, err := t.l.readSparse(ctx, t.stream, t.subject, r.at, base); whole || err != nil {
			return got, err
		}
	}
	r.batch = min(max(2*r.batch, firstBatch), store.BatchSize)
	return t.l.conn.GetFrom(ctx, t.stream, t.subject, r.at.rev+1, r.batch)
}

// missed handles a read that found nothing although the record continues: retry, from any
// replica, then skip the hole.
func (r *Reader) missed(ctx context.Context) ([]process.Event, error) {
	if r.misses++; r.misses <= holeTries {
		store.Backoff(ctx, r.misses+3)
		return nil, ctx.Err()
	}
	r.misses = 0
	t := r.t
	t.mu.Lock()
	base := t.base
	t.mu.Unlock()
	next, ok := t.l.readable(ctx, t.stream, t.subject, r.at.rev+1, base.rev)
	if ok {
		r.at.rev = next - 1 // decode detects the hole
		return nil, nil
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	gap := t.l.gap(t.ref.ID, r.at.seq, base.seq)
	r.at = base
	return []process.Event{gap}, nil
}

// checkFirst returns an error of kind.Gone if the record's beginning fell out of retention.
func (r *Reader) checkFirst(m store.Message) error {
	b, err := codec.ParseBatch(m.Data)
	if err == nil && b.From() > r.at.seq+1 {
		return gone(r.t.ref.ID, b.From())
	}
	return nil
}
