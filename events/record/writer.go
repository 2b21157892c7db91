package record

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/millrace/millrace/events/internal/codec"
	"github.com/millrace/millrace/events/internal/observe"
	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
)

// Writer appends to one process's record, with one message in flight; each message expects
// the one before it. It belongs to one goroutine.
type Writer struct {
	l       *Records
	ref     Ref
	stream  string
	subject string
	epoch   uint64
	rev     uint64 // stream sequence of the last message known to be stored
	last    process.Seq
	exited  *process.Exit // of the record's Exited
	buf     []byte        // the message to store, uncompressed
	head    int           // length of the head in buf
	packed  []byte        // reused buffer for the compressed message
	bridged *bridged      // the message before bridge changed it; nil if it did not
}

// MaxBatch is the maximum number of output bytes in one message. Append splits larger
// batches.
const MaxBatch = 256 << 10

// Writer returns a writer for a record in this run of the host. It does no I/O and assumes
// that the record is empty until Recover loads its tail.
func (l *Records) Writer(ref Ref, epoch uint64) *Writer {
	return &Writer{l: l, ref: ref, stream: streams.Out(streams.ShardOf(ref.Host, l.conn.Shards())), subject: ref.subject(l.conn.Shards()), epoch: epoch}
}

// Tail is the end of a record.
type Tail struct {
	Last     process.Seq // the last event stored
	At       time.Time   // time of that event by its writer's clock; zero if unknown
	Host     string      // host that wrote the last message
	Epoch    uint64
	Exited   *process.Exit     // of the record's Exited, even if other events follow it; nil if the record has none
	Finished *process.Finished // nil if the record has not ended
	Stale    bool              // read from a replica: the record may be longer

	rev uint64
}

// Tail reads the end of a record from its leader. It returns NotFound if the record has no
// event.
func (l *Records) Tail(ctx context.Context, ref Ref) (Tail, error) {
	m, ok, err := l.conn.LastOf(ctx, streams.Out(streams.ShardOf(ref.Host, l.conn.Shards())), ref.subject(l.conn.Shards()))
	if err != nil {
		return Tail{}, err
	}
	if !ok {
		return Tail{}, kind.New(kind.NotFound, "read", string(ref.ID), "the process has no record")
	}
	return tailOf(m)
}

// LoadTails reads the ends of many records of one host at once, from any replica, so that each
// record may be longer. Records without an event or with a last message that is too large are
// omitted. A [Tail] with [Tail.Stale] set must not decide anything, except as an argument of
// Writer.AssumeTail, which verifies it.
func (l *Records) LoadTails(ctx context.Context, host string, ids []process.ID) (map[process.ID]Tail, error) {
	out := make(map[process.ID]Tail, len(ids))
	stream := streams.Out(streams.ShardOf(host, l.conn.Shards()))
	for some := range slices.Chunk(ids, store.BatchSize) {
		req := store.GetRequest{MaxBytes: store.BatchBytes}
		of := make(map[string]process.ID, len(some))
		for _, id := range some {
			subject := Ref{Host: host, ID: id}.subject(l.conn.Shards())
			req.Lasts, of[subject] = append(req.Lasts, subject), id
		}
		got, err := l.conn.DirectGet(ctx, stream, req)
		if err != nil {
			return out, err
		}
		for _, m := range got {
			if t, err := tailOf(m); err == nil {
				t.Stale = true
				out[of[m.Subject]] = t
			}
		}
	}
	return out, nil
}

// StaleTail is like [Records.Tail] but falls back to any replica if there is no leader, for example when
// most servers are down. Its result is for readers: it must not decide anything.
func (l *Records) StaleTail(ctx context.Context, ref Ref) (Tail, error) {
	stream, subject := streams.Out(streams.ShardOf(ref.Host, l.conn.Shards())), ref.subject(l.conn.Shards())
	for try := 0; ; {
		m, ok, err := l.conn.LeaderGet(ctx, stream, store.GetRequest{Last: subject})
		switch {
		case err == nil && ok:
			return tailOf(m)
		case err == nil:
			return Tail{}, kind.New(kind.NotFound, "read", string(ref.ID), "the process has no record")
		}
		got, _ := l.conn.DirectGet(ctx, stream, store.GetRequest{Last: subject}) // an error leaves got empty
		if len(got) > 0 {
			t, err := tailOf(got[0])
			t.Stale = t.Finished == nil
			return t, err
		}
		if !l.conn.Backoff(ctx, &try) {
			return Tail{}, store.Unavailable("read", string(ref.ID), err)
		}
	}
}

func tailOf(m store.Message) (Tail, error) {
	b, err := codec.ParseBatch(m.Data)
	if err != nil {
		return Tail{}, kind.Wrap(kind.Internal, "read", m.Subject, err)
	}
	return tailOfBatch(m.Seq, &b), nil
}

// tailOfBatch returns the tail of a record whose last message is b.
func tailOfBatch(rev uint64, b *process.Batch) Tail {
	t := Tail{Last: b.FirstSeq + process.Seq(b.Frames) - 1, Host: b.Host, Epoch: b.Epoch, Exited: b.Exited, rev: rev}
	if x := exitIn(b.Events); x != nil {
		t.Exited = x
	}
	if n := len(b.Events); n > 0 {
		t.At = b.Events[n-1].Time
		if fin, ok := b.Events[n-1].Body.(process.Finished); ok {
			t.Finished = &fin
		}
	}
	return t
}

// exitIn returns the first Exited among the events, or nil.
func exitIn(evs []process.Event) *process.Exit {
	for i := range evs {
		if x, ok := evs[i].Body.(process.Exited); ok {
			return &x.Exit
		}
	}
	return nil
}

// Recover makes w continue after the stored events, as a new run of the host must. It
// returns NotFound if the record has no event; then w starts at its beginning.
func (w *Writer) Recover(ctx context.Context) (Tail, error) {
	t, err := w.l.Tail(ctx, w.ref)
	if err == nil {
		w.AssumeTail(t)
	}
	return t, err
}

// AssumeTail makes w continue after t without verifying that t is still the record's end. If it
// is not, the next Append returns Fenced, and Recover loads the current end.
func (w *Writer) AssumeTail(t Tail) {
	w.rev, w.last, w.exited, w.bridged = t.rev, t.Last, t.Exited, nil
}

// ContinueAfter makes w continue after an event that was stored, in a record whose messages have all
// fallen out of retention.
func (w *Writer) ContinueAfter(last process.Seq) { w.rev, w.last, w.exited = 0, last, nil }

// Last returns the seq of the last event known to be stored.
func (w *Writer) Last() process.Seq { return w.last }

// Exited returns the exit status in the record; nil if the record has no Exited.
func (w *Writer) Exited() *process.Exit { return w.exited }

// Append stores events once, in the given order, and returns when they are stored. Their
// Seq must be the next ones (w.Last()+1...); a [process.Gap] at the head takes the seqs of
// the whole hole. Earlier events may have fallen out of retention. Append retries through
// outages until ctx ends.
//
// Fenced: another writer ended the record, or a newer run of this host writes it; nothing
// may follow. Conflict: the first event of the record was claimed by another Start. After
// any error except Fenced, the events with a Seq after w.Last() may be appended again.
func (w *Writer) Append(ctx context.Context, events []process.Event) error {
	for len(events) > 0 {
		if !w.continues(&events[0]) {
			return kind.Newf(kind.Internal, "append", w.subject, "seq %d after %d", events[0].Seq, w.last)
		}
		n := w.encode(events)
		all := Tail{Last: events[n-1].Seq, Exited: cmp.Or(exitIn(events[:n]), w.exited)}
		begin := time.Now()
		if err := w.store(ctx, all); err != nil {
			if kind.Is(err, kind.Fenced) {
				observe.Count(w.l.conn.To.Fenced)
			}
			return err
		}
		observe.Since(w.l.conn.To.Append, begin)
		rest := after(events, w.last)
		w.l.count(events[:len(events)-len(rest)])
		events = rest
	}
	return nil
}

// PublishLive sends output that will not be stored to the readers that are attached now. They receive
// it when Append has stored its [process.WithoutOutput]. A reader to which it does not come receives
// that instead.
func (w *Writer) PublishLive(events []process.Event) {
	for len(events) > 0 {
		n := w.encode(events)
		if err := w.l.conn.PublishUnacked(streams.LivePrefix+w.subject, w.message()); err != nil {
			w.l.conn.Log().Debug("publish live output failed", "subject", w.subject, "err", err)
			return
		}
		events = events[n:]
	}
}

// continues reports whether e continues the record.
func (w *Writer) continues(e *process.Event) bool {
	g, ok := e.Body.(process.Gap)
	return e.Seq == w.last+1 || ok && g.From == w.last+1 && g.To == e.Seq && e.Seq > w.last
}

// encode puts as many events into w.buf as fit into one message, at least one.
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

// store publishes w.buf until it is stored. all is the record's tail after that.
func (w *Writer) store(ctx context.Context, all Tail) error {
	msg := w.message()
	var behind time.Time // since when the record has read as shorter than it was
	for try := 0; ; {
		tail := all
		rev, err := w.l.conn.Append(ctx, w.stream, w.subject, w.rev, msg)
		tail.rev = rev
		if errors.Is(err, store.ErrExpectation) {
			tail, err = w.resolve(ctx, !behind.IsZero() && time.Since(behind) > catchUp)
			msg = w.message()
		}
		switch {
		case err == nil && tail.rev != 0:
			w.AssumeTail(tail)
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
		if !w.l.conn.Backoff(ctx, &try) {
			return store.Unavailable("append", w.subject, ctx.Err())
		}
	}
}

// message returns w.buf as it is stored: compressed, if that is smaller.
func (w *Writer) message() []byte {
	var smaller bool
	if w.packed, smaller = codec.PackBatch(w.packed, w.buf, w.head); smaller {
		return w.packed
	}
	return w.buf
}

// resolve reads the record to find out why the expectation of a message did not hold. If
// the message, or an earlier attempt with more or fewer of the same events, is already
// stored, it returns the tail. If it is not stored and may be retried, it returns no tail.
// Otherwise another writer has the record. A record that ends before what was stored is
// errBehind; with lost set, the servers have had time to catch up, and a gap is put before
// the message.
func (w *Writer) resolve(ctx context.Context, lost bool) (Tail, error) {
	m, ok, err := w.l.conn.LastOf(ctx, w.stream, w.subject)
	if err != nil {
		return Tail{}, err
	}
	if !ok {
		// The process was silent for longer than the retention: any other writer would have
		// left a message.
		w.rev = 0
		return Tail{}, nil
	}
	plain, err := codec.UnpackBatch(m.Data)
	if err != nil {
		return Tail{}, kind.Wrap(kind.Internal, "append", w.subject, err)
	}
	b, err := process.ParseBatch(plain)
	if err != nil {
		return Tail{}, kind.Wrap(kind.Internal, "append", w.subject, err)
	}
	switch {
	case w.sameAs(plain):
		return tailOfBatch(m.Seq, &b), nil
	case m.Seq == w.rev:
		return Tail{}, nil // a replica rejected it by mistake: the record is as expected
	case w.bridged != nil && m.Seq == w.bridged.rev:
		w.unbridge() // the server that lost messages is not the leader
		return Tail{}, nil
	case m.Seq < w.rev && lost && w.bridge(m.Seq, &b):
		return Tail{}, nil
	case m.Seq < w.rev:
		return Tail{}, errBehind
	case w.last == 0:
		return Tail{}, kind.New(kind.Conflict, "append", w.subject, "the start was claimed before")
	}
	return Tail{}, kind.Newf(kind.Fenced, "append", w.subject, "host %s in epoch %d writes the record", b.Host, b.Epoch)
}

// errBehind reports a record that ends before what was stored in it. A new leader that has
// not applied everything reports this for a moment, a stream that lost its end from then
// on.
var errBehind = errors.New("the record ends before what was stored")

// catchUp is how long a leader may take to apply the stored messages.
const catchUp = 10 * time.Second

// sameAs reports whether the stored bytes, uncompressed, are those just published, or those
// of an abandoned attempt that began at the same event and ended sooner or later. A message
// is a head (host, epoch, first seq, earlier Exited), then one event after the other.
func (w *Writer) sameAs(data []byte) bool {
	return len(data) > 0 && (bytes.HasPrefix(w.buf, data) || bytes.HasPrefix(data, w.buf))
}

// shrink releases a large buffer: most writers are quiet most of the time.
func (w *Writer) shrink() {
	if cap(w.buf) > 16<<10 && len(w.buf) < 4<<10 {
		w.buf, w.packed = nil, nil
	}
}
