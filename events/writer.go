package events

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
)

// Writer appends to one process's record: one message in flight, each expecting
// the one before. It belongs to one goroutine.
type Writer struct {
	l       *Log
	ref     Ref
	stream  string
	subject string
	epoch   uint64
	rev     uint64 // stream sequence of the last message known to be stored
	last    process.Seq
	buf     []byte // the message to store, not packed,
	head    int    // of which this much is the head
	packed  []byte // memory for it as it is stored
}

// MaxBatch is the most bytes of output that one message carries. Append splits
// what is larger.
const MaxBatch = 256 << 10

// Writer gives a writer for a record of this host's life. It does no I/O; the
// record is taken to be empty until Recover says otherwise.
func (l *Log) Writer(ref Ref, epoch uint64) *Writer {
	return &Writer{l: l, ref: ref, stream: outStream(shardOf(ref.Host, l.shards)), subject: ref.subject(l.shards), epoch: epoch}
}

// Tip is the end of a record.
type Tip struct {
	Last     process.Seq // the last event stored
	Host     string      // who wrote the last message
	Epoch    uint64
	Finished *process.Finished // nil: the record goes on
	Lags     bool              // it is a replica's word: there may be more

	rev uint64
}

// Tip reads the end of a record from its leader. NotFound if it has no event.
func (l *Log) Tip(ctx context.Context, ref Ref) (Tip, error) {
	m, ok, err := l.lastOf(ctx, outStream(shardOf(ref.Host, l.shards)), ref.subject(l.shards))
	if err != nil {
		return Tip{}, err
	}
	if !ok {
		return Tip{}, kind.New(kind.NotFound, "read", string(ref.ID), "the process has no record")
	}
	return tipOf(m)
}

// Tips reads the ends of many records of one host at one go, from whichever
// replica answers: there may be more of each. Those that have no event, or too
// large a last message, are missing. Nothing may be decided on a Tip that Lags but
// what Writer.Follow is given.
func (l *Log) Tips(ctx context.Context, host string, ids []process.ID) (map[process.ID]Tip, error) {
	out := make(map[process.ID]Tip, len(ids))
	stream := outStream(shardOf(host, l.shards))
	for some := range slices.Chunk(ids, getBatch) {
		req := getRequest{MaxBytes: getBytes}
		of := make(map[string]process.ID, len(some))
		for _, id := range some {
			subject := Ref{Host: host, ID: id}.subject(l.shards)
			req.Lasts, of[subject] = append(req.Lasts, subject), id
		}
		got, err := l.directGet(ctx, stream, req)
		if err != nil {
			return out, err
		}
		for _, m := range got {
			if t, err := tipOf(m); err == nil {
				t.Lags = true
				out[of[m.subject]] = t
			}
		}
	}
	return out, nil
}

// Glance is Tip for readers: without a leader, as when most servers are away, it
// takes the word of whichever replica answers. Nothing may be decided on that.
func (l *Log) Glance(ctx context.Context, ref Ref) (Tip, error) {
	stream, subject := outStream(shardOf(ref.Host, l.shards)), ref.subject(l.shards)
	for try := 0; ; {
		m, ok, err := l.leaderGet(ctx, stream, getRequest{Last: subject})
		switch {
		case err == nil && ok:
			return tipOf(m)
		case err == nil:
			return Tip{}, kind.New(kind.NotFound, "read", string(ref.ID), "the process has no record")
		}
		got, _ := l.directGet(ctx, stream, getRequest{Last: subject}) //nolint:errcheck // then there is none
		if len(got) > 0 {
			t, err := tipOf(got[0])
			t.Lags = t.Finished == nil
			return t, err
		}
		if !l.pause(ctx, &try) {
			return Tip{}, kind.Wrap(kind.Unavailable, "read", string(ref.ID), err)
		}
	}
}

func tipOf(m stored) (Tip, error) {
	b, err := parseBatch(m.data)
	if err != nil {
		return Tip{}, kind.Wrap(kind.Internal, "read", m.subject, err)
	}
	t := Tip{Last: b.FirstSeq + process.Seq(b.Frames) - 1, Host: b.Host, Epoch: b.Epoch, rev: m.seq}
	if n := len(b.Events); n > 0 {
		if fin, ok := b.Events[n-1].Body.(process.Finished); ok {
			t.Finished = &fin
		}
	}
	return t, nil
}

// Recover makes w go on after what is stored, as a new life of a host must.
// NotFound if the record has no event: then w is at its start.
func (w *Writer) Recover(ctx context.Context) (Tip, error) {
	t, err := w.l.Tip(ctx, w.ref)
	if err == nil {
		w.rev, w.last = t.rev, t.Last
	}
	return t, err
}

// Follow makes w go on after t, which may not be the record's end any more: then
// the next Append is Fenced, and Recover says by what.
func (w *Writer) Follow(t Tip) { w.rev, w.last = t.rev, t.Last }

// GoOn makes w go on after an event that is known to have been stored, of a
// record of which nothing is left: all of it fell out of retention.
func (w *Writer) GoOn(last process.Seq) { w.rev, w.last = 0, last }

// Last is the seq of the last event known to be stored.
func (w *Writer) Last() process.Seq { return w.last }

// Append stores events in the given order, once, and returns when they are
// stored. Their Seq must be the next ones (w.Last()+1...). What was stored before
// may have fallen out of retention: the record goes on. It retries through
// outages until ctx ends; after an error for any other reason than kind.Fenced
// the events with a Seq after w.Last() may be appended again. Fenced: somebody
// else ended the record, or a newer life of this host writes it; nothing may
// follow. Conflict: the first event of the record was claimed by another Start.
func (w *Writer) Append(ctx context.Context, events []process.Event) error {
	for len(events) > 0 {
		if events[0].Seq != w.last+1 {
			return kind.Newf(kind.Internal, "append", w.subject, "seq %d after %d", events[0].Seq, w.last)
		}
		n := w.encode(events)
		if err := w.store(ctx, w.last+process.Seq(n)); err != nil {
			return err
		}
		events = after(events, w.last)
	}
	return nil
}

// encode puts as many events into w.buf as one message takes, at least one.
func (w *Writer) encode(events []process.Event) int {
	head := process.Batch{
		Sandbox: string(w.ref.ID.Sandbox()), Process: w.ref.ID.Token(),
		Host: w.ref.Host, Epoch: w.epoch, FirstSeq: events[0].Seq,
	}
	w.buf = process.AppendBatchHead(w.buf[:0], &head)
	w.head = len(w.buf)
	for i := range events {
		was := len(w.buf)
		w.buf = process.AppendBatchFrame(w.buf, &events[i])
		if i > 0 && len(w.buf) > MaxBatch+headRoom {
			w.buf = w.buf[:was]
			return i
		}
	}
	return len(events)
}

// headRoom lets a full frame of output and its head share one message.
const headRoom = 4 << 10

// store publishes w.buf, whose last event has seq upTo, until it is stored.
func (w *Writer) store(ctx context.Context, upTo process.Seq) error {
	msg := w.buf
	var smaller bool
	if w.packed, smaller = packBatch(w.packed, w.buf, w.head); smaller {
		msg = w.packed
	}
	for try := 0; ; {
		rev, err := w.l.publish(ctx, w.subject, w.rev, msg)
		last := upTo
		if errors.Is(err, errExpectation) {
			rev, last, err = w.resolve(ctx)
		}
		switch {
		case err == nil && rev != 0:
			w.rev, w.last = rev, last
			w.shrink()
			return nil
		case err != nil && !kind.Is(err, kind.Unavailable):
			return err
		}
		if !w.l.pause(ctx, &try) {
			return kind.Wrap(kind.Unavailable, "append", w.subject, ctx.Err())
		}
	}
}

// resolve tells what became of a message whose expectation did not hold, from
// the record itself: it, or an earlier try with more or fewer of the same events,
// is stored already (its rev and last event), it is not and may be tried again
// (0), or somebody else writes here.
func (w *Writer) resolve(ctx context.Context) (uint64, process.Seq, error) {
	m, ok, err := w.l.lastOf(ctx, w.stream, w.subject)
	if err != nil {
		return 0, 0, err
	}
	if !ok {
		// A process that was silent for longer than the retention: whoever else
		// may write here would have left something.
		w.rev = 0
		return 0, 0, nil
	}
	plain, err := unpackBatch(m.data)
	if err != nil {
		return 0, 0, kind.Wrap(kind.Internal, "append", w.subject, err)
	}
	b, err := process.ParseBatch(plain)
	if err != nil {
		return 0, 0, kind.Wrap(kind.Internal, "append", w.subject, err)
	}
	switch {
	case w.sameAs(plain):
		return m.seq, b.FirstSeq + process.Seq(b.Frames) - 1, nil
	case m.seq == w.rev:
		return 0, 0, nil // a replica spoke out of turn: the record is as expected
	case w.last == 0:
		return 0, 0, kind.New(kind.Conflict, "append", w.subject, "the start was claimed before")
	}
	return 0, 0, kind.Newf(kind.Fenced, "append", w.subject, "host %s in epoch %d writes the record", b.Host, b.Epoch)
}

// sameAs reports whether the stored bytes, unpacked, are those just published, or those of
// an earlier try that was given up, which began at the same event and ended
// sooner or later: a message is its head, with host, epoch and first seq, and then
// one event after the other.
func (w *Writer) sameAs(data []byte) bool {
	return len(data) > 0 && (bytes.HasPrefix(w.buf, data) || bytes.HasPrefix(data, w.buf))
}

// shrink lets go of a large buffer: most writers are quiet most of the time.
func (w *Writer) shrink() {
	if cap(w.buf) > 16<<10 && len(w.buf) < 4<<10 {
		w.buf, w.packed = nil, nil
	}
}
