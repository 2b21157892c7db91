package record

import (
	"context"
	"errors"
	"time"

	"github.com/millrace/millrace/events/internal/codec"
	"github.com/millrace/millrace/events/internal/observe"
	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
)

// goneError carries the first event that is left, from which a caller can continue.
type goneError struct{ first process.Seq }

func (e *goneError) Error() string { return "it fell out of retention" }

func gone(id process.ID, first process.Seq) error {
	return kind.Wrap(kind.Gone, "read", string(id), &goneError{first})
}

// FirstSeq returns the first event left of a record, from a Reader's error of kind.Gone.
func FirstSeq(err error) (process.Seq, bool) {
	var g *goneError
	if errors.As(err, &g) {
		return g.first, true
	}
	return 0, false
}

// span is a message of a record: the events it carries and its stream sequence.
type span struct {
	first, last process.Seq
	rev         uint64
}

// seek finds the stream sequence of the message that carries event seq. It interpolates
// between the record's ends as if events came evenly, and bisects where they did not: a
// handful of reads for a million events. It returns Gone if seq is before the record's
// beginning.
func (l *Records) seek(ctx context.Context, stream, subject string, seq process.Seq) (uint64, error) {
	lo, err := l.spanAt(ctx, stream, subject, 1)
	if err != nil {
		return 0, err
	}
	if seq < lo.first {
		return 0, kind.Wrap(kind.Gone, "read", subject, &goneError{lo.first})
	}
	hi, err := l.lastSpan(ctx, stream, subject)
	if err != nil {
		return 0, err
	}
	top := hi.rev // no message of the record lies in [top, hi.rev)
	for try := 0; ; {
		switch {
		case seq <= lo.last:
			return lo.rev, nil
		case seq >= hi.first || lo.rev+1 >= top:
			return hi.rev, nil
		}
		at := guess(lo, hi, top, seq, try)
		mid, err := l.spanAt(ctx, stream, subject, at)
		if kind.Is(err, kind.NotFound) {
			return lo.rev, nil // a hole, which the reader handles
		}
		if err != nil {
			return 0, err
		}
		switch {
		case mid.rev >= hi.rev:
			top = at
		case seq < mid.first:
			hi, top = mid, mid.rev
		default:
			lo = mid
		}
	}
}

// guess returns a stream sequence after lo and before top where seq may be. Every third
// guess bisects, so that uneven records stay cheap.
func guess(lo, hi span, top uint64, seq process.Seq, try int) uint64 {
	width := top - lo.rev
	step := width / 2
	if try%3 != 2 {
		step = uint64(float64(width) * float64(seq-lo.last) / float64(hi.first-lo.last))
	}
	return lo.rev + min(max(step, 1), width-1)
}

// spanAt reads the record's first message at or after a stream sequence.
func (l *Records) spanAt(ctx context.Context, stream, subject string, rev uint64) (span, error) {
	return l.readSpan(ctx, stream, store.GetRequest{Seq: rev, Next: subject})
}

func (l *Records) lastSpan(ctx context.Context, stream, subject string) (span, error) {
	return l.readSpan(ctx, stream, store.GetRequest{Last: subject})
}

func (l *Records) readSpan(ctx context.Context, stream string, req store.GetRequest) (span, error) {
	b, m, err := l.readBatch(ctx, stream, req)
	return spanOf(&b, m.Seq), err
}

func spanOf(b *process.Batch, rev uint64) span {
	return span{b.From(), b.FirstSeq + process.Seq(b.Frames) - 1, rev}
}

// readBatch reads one message of a record and retries while the store is unavailable. It
// returns NotFound only if the leader has no such message: a replica may lag.
func (l *Records) readBatch(ctx context.Context, stream string, req store.GetRequest) (process.Batch, store.Message, error) {
	m, ok, err := l.conn.ReadOne(ctx, stream, req)
	if err != nil {
		return process.Batch{}, store.Message{}, err
	}
	if !ok {
		return process.Batch{}, store.Message{}, kind.New(kind.NotFound, "read", req.Next+req.Last, "the process has no record")
	}
	b, err := codec.ParseBatch(m.Data)
	return b, m, err
}

// decode returns the events of a stored message after event last. It tries to fill a hole
// before them, and returns a gap if it cannot. It drops duplicates; ok is false if nothing
// is left.
func (l *Records) decode(ctx context.Context, ref Ref, last process.Seq, m store.Message) (chunks []chunk, ok bool) {
	b, err := codec.ParseBatch(m.Data)
	if err != nil || b.Sandbox != string(ref.ID.Sandbox()) || b.Process != ref.ID.Token() {
		l.conn.Log().Error("message does not match its subject", "subject", m.Subject, "rev", m.Seq, "err", err)
		return nil, false
	}
	c := chunkOf(b, last, m.Seq)
	if c.seq <= last {
		return nil, false
	}
	if b.From() > last+1 {
		chunks = l.fill(ctx, ref, last, m)
	}
	return append(chunks, c), true
}

// chunkOf returns the events after last of the message at stream sequence rev.
func chunkOf(b process.Batch, last process.Seq, rev uint64) chunk {
	return chunk{
		position: position{seq: b.FirstSeq + process.Seq(b.Frames) - 1, rev: rev},
		first:    b.From(),
		events:   after(b.Events, last),
		size:     b.Size + 64*b.Frames,
	}
}

// holeTries is how often the replicas are asked to fill a hole.
const holeTries = 5

// fill reads the events between event last and message m again. Events that no replica has
// become a Gap.
func (l *Records) fill(ctx context.Context, ref Ref, last process.Seq, m store.Message) []chunk {
	stream, subject := streams.Out(streams.ShardOf(ref.Host, l.conn.Shards())), ref.subject(l.conn.Shards())
	end, err := codec.ParseBatch(m.Data)
	if err != nil {
		return nil
	}
	for try := range holeTries {
		if rev, err := l.seek(ctx, stream, subject, last+1); err == nil && rev < m.Seq {
			if got, ok := l.between(ctx, ref, last, rev, m.Seq); ok {
				return got
			}
		}
		if !store.Backoff(ctx, try+4) {
			return nil
		}
	}
	to := end.From() - 1
	gap := l.gap(ref.ID, last, to)
	return []chunk{{position: position{seq: to, rev: m.Seq - 1}, first: last + 1, events: []process.Event{gap}, size: 128}}
}

// gap returns the event for a hole after event last, up to and including event to.
func (l *Records) gap(id process.ID, last, to process.Seq) process.Event {
	observe.Count(l.conn.To.Gap)
	l.conn.Log().Error("no replica can fill a hole in a record", "process", id, "from", last+1, "to", to)
	return process.Event{Seq: to, Time: time.Now(), Body: process.Gap{From: last + 1, To: to, Reason: "the store cannot read it"}}
}

// readable returns the first stream sequence in (lo, hi] from which the store can read a
// message of subject again.
func (l *Records) readable(ctx context.Context, stream, subject string, lo, hi uint64) (uint64, bool) {
	can := func(rev uint64) bool {
		_, ok, err := l.conn.ReadOne(ctx, stream, store.GetRequest{Seq: max(rev, 1), Next: subject})
		return err == nil && ok
	}
	if lo >= hi || !can(hi) {
		return 0, false
	}
	for lo+1 < hi {
		if mid := lo + (hi-lo)/2; can(mid) {
			hi = mid
		} else {
			lo = mid
		}
	}
	return hi, true
}

// between reads the messages from stream sequence rev to before end, if they continue from
// last and reach end without a hole.
func (l *Records) between(ctx context.Context, ref Ref, last process.Seq, rev, end uint64) ([]chunk, bool) {
	stream, subject := streams.Out(streams.ShardOf(ref.Host, l.conn.Shards())), ref.subject(l.conn.Shards())
	var out []chunk
	for rev < end {
		msgs, err := l.conn.GetFrom(ctx, stream, subject, rev, store.BatchSize)
		if err == nil && len(msgs) == 0 { // the replica may lag
			var m store.Message
			var ok bool
			if m, ok, err = l.conn.LeaderGet(ctx, stream, store.GetRequest{Seq: max(rev, 1), Next: subject}); ok {
				msgs = append(msgs, m)
			}
		}
		if err != nil || len(msgs) == 0 {
			return nil, false
		}
		for _, m := range msgs {
			if m.Seq >= end {
				return out, len(out) > 0
			}
			b, err := codec.ParseBatch(m.Data)
			if err != nil || b.From() > last+1 {
				return nil, false
			}
			c := chunkOf(b, last, m.Seq)
			last, rev = max(last, c.seq), m.Seq+1
			out = append(out, c)
		}
	}
	return out, len(out) > 0
}
