package events

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"time"

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
	exited  *process.Exit // of the record's Exited
	buf     []byte        // the message to store, not packed,
	head    int           // of which this much is the head
	packed  []byte        // memory for it as it is stored
	bridged *bridged      // the message before bridge changed it; nil: it did not
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
	At       time.Time   // when that was, by the clock of who stored it; zero: not known
	Host     string      // who wrote the last message
	Epoch    uint64
	Exited   *process.Exit     // of the record's Exited, however much follows it; nil: there is none
	Finished *process.Finished // nil: the record goes on
	Lags     bool              // it is a replica's word: there may be more

	rev uint64
	old bool // of a version whose messages say nothing of an Exited before them
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
// replica answers: there may be more of each. Those that have no event, too large a
// last message or one of an old version are missing. Nothing may be decided on a Tip that Lags but
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
			if t, err := tipOf(m); err == nil && !t.old {
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
			return Tip{}, unavailable("read", string(ref.ID), err)
		}
	}
}

func tipOf(m stored) (Tip, error) {
	b, err := parseBatch(m.data)
	if err != nil {
		return Tip{}, kind.Wrap(kind.Internal, "read", m.subject, err)
	}
	return endOf(m.seq, &b), nil
}

// endOf is the tip of a record whose last message is b.
func endOf(rev uint64, b *process.Batch) Tip {
	t := Tip{Last: b.FirstSeq + process.Seq(b.Frames) - 1, Host: b.Host, Epoch: b.Epoch, Exited: b.Exited, rev: rev}
	if x := exitIn(b.Events); x != nil {
		t.Exited = x
	}
	if n := len(b.Events); n > 0 {
		t.At = b.Events[n-1].Time
		if fin, ok := b.Events[n-1].Body.(process.Finished); ok {
			t.Finished = &fin
		}
	}
	t.old = b.Version < 2 && t.Exited == nil && t.Finished == nil
	return t
}

// exitIn finds an Exited among events.
func exitIn(evs []process.Event) *process.Exit {
	for i := range evs {
		if x, ok := evs[i].Body.(process.Exited); ok {
			return &x.Exit
		}
	}
	return nil
}

// oldExit looks for an Exited in a record of an old version, among so many last events as
// that version did, of those that did not fall out of retention.
func (l *Log) oldExit(ctx context.Context, ref Ref, last process.Seq) (*process.Exit, error) {
	const far = 64
	after := last - min(last, far)
	for {
		x, err := l.exitAfter(ctx, ref, after, last)
		first, gone := FirstSeq(err)
		if !gone || first <= after+1 {
			return x, err
		}
		after = first - 1
	}
}

// exitAfter looks for an Exited after one event up to another.
func (l *Log) exitAfter(ctx context.Context, ref Ref, after, last process.Seq) (*process.Exit, error) {
	r := l.Read(ref, after)
	defer r.Close()
	for r.After() < last {
		evs, err := r.Next(ctx, 0)
		if x := exitIn(evs); x != nil || errors.Is(err, io.EOF) {
			return x, nil
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// Recover makes w go on after what is stored, as a new life of a host must.
// NotFound if the record has no event: then w is at its start.
func (w *Writer) Recover(ctx context.Context) (Tip, error) {
	t, err := w.l.Tip(ctx, w.ref)
	if err == nil && t.old {
		t.Exited, err = w.l.oldExit(ctx, w.ref, t.Last)
	}
	if err == nil {
		w.Follow(t)
	}
	return t, err
}

// Follow makes w go on after t, which may not be the record's end any more: then
// the next Append is Fenced, and Recover says by what.
func (w *Writer) Follow(t Tip) { w.rev, w.last, w.exited, w.bridged = t.rev, t.Last, t.Exited, nil }

// GoOn makes w go on after an event that is known to have been stored, of a
// record of which nothing is left: all of it fell out of retention.
func (w *Writer) GoOn(last process.Seq) { w.rev, w.last, w.exited = 0, last, nil }

// Last is the seq of the last event known to be stored.
func (w *Writer) Last() process.Seq { return w.last }

// Exited is how the process ended as its record has it; nil if it has no Exited.
func (w *Writer) Exited() *process.Exit { return w.exited }

// Append stores events in the given order, once, and returns when they are
// stored. Their Seq must be the next ones (w.Last()+1...); a [process.Gap] at their head
// takes the seqs of the whole hole. What was stored before
// may have fallen out of retention: the record goes on. It retries through
// outages until ctx ends; after an error for any other reason than kind.Fenced
// the events with a Seq after w.Last() may be appended again. Fenced: somebody
// else ended the record, or a newer life of this host writes it; nothing may
// follow. Conflict: the first event of the record was claimed by another Start.
func (w *Writer) Append(ctx context.Context, events []process.Event) error {
	for len(events) > 0 {
		if !w.joins(&events[0]) {
			return kind.Newf(kind.Internal, "append", w.subject, "seq %d after %d", events[0].Seq, w.last)
		}
		n := w.encode(events)
		all := Tip{Last: events[n-1].Seq, Exited: cmp.Or(exitIn(events[:n]), w.exited)}
		if err := w.store(ctx, all); err != nil {
			return err
		}
		events = after(events, w.last)
	}
	return nil
}

// joins reports whether e continues the record.
func (w *Writer) joins(e *process.Event) bool {
	g, ok := e.Body.(process.Gap)
	return e.Seq == w.last+1 || ok && g.From == w.last+1 && g.To == e.Seq && e.Seq > w.last
}

// encode puts as many events into w.buf as one message takes, at least one.
func (w *Writer) encode(events []process.Event) int {
	head := process.Batch{
		Sandbox: string(w.ref.ID.Sandbox()), Process: w.ref.ID.Token(),
		Host: w.ref.Host, Epoch: w.epoch, FirstSeq: events[0].Seq, Exited: w.exited,
	}
	w.buf = process.AppendBatchHead(w.buf[:0], &head)
	w.head = len(w.buf)
	for i := range events {
		if i > 0 && events[i].Seq != events[i-1].Seq+1 {
			return i // a gap begins a message: seqs within one are dense
		}
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

// store publishes w.buf, which makes all the record's tip, until it is stored.
func (w *Writer) store(ctx context.Context, all Tip) error {
	msg := w.message()
	var behind time.Time // since when the record has been read as shorter than it was
	for try := 0; ; {
		tip := all
		rev, err := w.l.publish(ctx, w.subject, w.rev, msg)
		tip.rev = rev
		if errors.Is(err, errExpectation) {
			tip, err = w.resolve(ctx, !behind.IsZero() && time.Since(behind) > catchUp)
			msg = w.message()
		}
		switch {
		case err == nil && tip.rev != 0:
			w.Follow(tip)
			w.shrink()
			return nil
		case errors.Is(err, errBehind):
			if behind.IsZero() {
				behind = time.Now()
			}
			if time.Since(behind) > catchUp {
				return kind.Wrap(kind.Fenced, "append", w.subject, err)
			}
		case err != nil && !kind.Is(err, kind.Unavailable):
			return err
		}
		if !w.l.pause(ctx, &try) {
			return unavailable("append", w.subject, ctx.Err())
		}
	}
}

// message returns w.buf as it is stored: packed, if that is smaller.
func (w *Writer) message() []byte {
	var smaller bool
	if w.packed, smaller = packBatch(w.packed, w.buf, w.head); smaller {
		return w.packed
	}
	return w.buf
}

// resolve tells what became of a message whose expectation did not hold, from
// the record itself: it, or an earlier try with more or fewer of the same events,
// is stored already (and is the tip), it is not and may be tried again (no tip),
// or somebody else writes here. A record that ends before what was stored is errBehind; with
// lost, the servers have had the time to catch up, and a gap is put before the message.
func (w *Writer) resolve(ctx context.Context, lost bool) (Tip, error) {
	m, ok, err := w.l.lastOf(ctx, w.stream, w.subject)
	if err != nil {
		return Tip{}, err
	}
	if !ok {
		// A process that was silent for longer than the retention: whoever else
		// may write here would have left something.
		w.rev = 0
		return Tip{}, nil
	}
	plain, err := unpackBatch(m.data)
	if err != nil {
		return Tip{}, kind.Wrap(kind.Internal, "append", w.subject, err)
	}
	b, err := process.ParseBatch(plain)
	if err != nil {
		return Tip{}, kind.Wrap(kind.Internal, "append", w.subject, err)
	}
	switch {
	case w.sameAs(plain):
		return endOf(m.seq, &b), nil
	case m.seq == w.rev:
		return Tip{}, nil // a replica spoke out of turn: the record is as expected
	case w.bridged != nil && m.seq == w.bridged.rev:
		w.unbridge() // the server that had lost messages is not the leader
		return Tip{}, nil
	case m.seq < w.rev && lost && w.lost(m.seq, &b):
		return Tip{}, nil
	case m.seq < w.rev:
		return Tip{}, errBehind
	case w.last == 0:
		return Tip{}, kind.New(kind.Conflict, "append", w.subject, "the start was claimed before")
	}
	return Tip{}, kind.Newf(kind.Fenced, "append", w.subject, "host %s in epoch %d writes the record", b.Host, b.Epoch)
}

// errBehind reports a record that ends before what was stored in it. A new leader
// that has not applied everything answers so for a moment, and a stream that lost
// its end answers so from then on.
var errBehind = errors.New("the record ends before what was stored")

// catchUp is how long a leader may take to apply what was stored.
const catchUp = 10 * time.Second

// sameAs reports whether the stored bytes, unpacked, are those just published, or those of
// an earlier try that was given up, which began at the same event and ended
// sooner or later: a message is its head, with host, epoch, first seq and what was before
// that, and then one event after the other.
func (w *Writer) sameAs(data []byte) bool {
	return len(data) > 0 && (bytes.HasPrefix(w.buf, data) || bytes.HasPrefix(data, w.buf))
}

// shrink lets go of a large buffer: most writers are quiet most of the time.
func (w *Writer) shrink() {
	if cap(w.buf) > 16<<10 && len(w.buf) < 4<<10 {
		w.buf, w.packed = nil, nil
	}
}
