package record

import (
	"context"
	"sync"
	"time"

	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/process"
)

// liveTail is the live end of one record, shared by all its readers on this connection: one
// subscription, one decoding, and the last few messages in memory. A reader that is not
// within those reads from the store instead.
type liveTail struct {
	l       *Records
	ref     Ref
	stream  string
	subject string
	cancel  context.CancelFunc
	refs    int // guarded by Records.mu

	mu      sync.Mutex
	synced  bool          // base and last are known
	recent  []chunk       // contiguous, up to last
	size    int           // bytes in recent
	base    position      // position before recent[0]
	last    process.Seq   // last known event
	fin     bool          // last is Finished
	err     error         // the tail has ended: nothing follows
	changed chan struct{} // closed and replaced at every change
}

// chunk is one decoded message.
type chunk struct {
	position
	first  process.Seq
	events []process.Event
	size   int
}

// position is the position of a reader: after event seq, which the message with stream
// sequence rev carried.
type position struct {
	seq process.Seq
	rev uint64
}

// recentBytes bounds the memory of a busy record's live end. It is released after a while
// of silence.
const recentBytes = 4 << 20

// attach returns the shared tail of a record, creating it if necessary. With fresh, nothing was
// stored in the record before the call.
func (l *Records) attach(ref Ref, fresh bool) (*liveTail, error) {
	subject := ref.subject(l.conn.Shards())
	l.mu.Lock()
	if t := l.tails[subject]; t != nil {
		t.refs++
		l.mu.Unlock()
		return t, nil
	}
	l.mu.Unlock()

	ctx, cancel := context.WithCancel(context.Background())
	t := &liveTail{
		l: l, ref: ref, stream: streams.Out(streams.ShardOf(ref.Host, l.conn.Shards())), subject: subject,
		cancel: cancel, refs: 1, changed: make(chan struct{}), synced: fresh,
	}
	f, err := t.follow(fresh)
	if err != nil {
		cancel()
		return nil, store.Unavailable("read", string(ref.ID), err)
	}
	l.mu.Lock()
	if other := l.tails[subject]; other != nil { // another caller was faster
		other.refs++
		l.mu.Unlock()
		f.Close()
		cancel()
		return other, nil
	}
	l.tails[subject] = t
	l.mu.Unlock()
	go t.run(ctx, f, fresh)
	return t, nil
}

func (t *liveTail) follow(fresh bool) (*store.Feed, error) {
	if fresh {
		return t.l.conn.FollowNew(t.stream, t.subject)
	}
	return t.l.conn.Follow(t.stream, t.subject, 0)
}

// detach releases the tail. The last reader ends it.
func (t *liveTail) detach() {
	t.l.mu.Lock()
	defer t.l.mu.Unlock()
	if t.refs--; t.refs == 0 {
		if t.l.tails[t.subject] == t {
			delete(t.l.tails, t.subject)
		}
		t.cancel()
	}
}

// run feeds the tail until the record ends or its last reader detaches.
func (t *liveTail) run(ctx context.Context, f *store.Feed, fresh bool) {
	defer f.Close()
	var unkept unkept // of this goroutine
	f.Unstored = func(data []byte) { unkept.add(&t.ref, data) }
	if !fresh {
		if err := t.sync(ctx, f); err != nil {
			t.end(err)
			return
		}
	}
	quiet := time.NewTicker(time.Second)
	defer quiet.Stop()
	for !t.finished() {
		msgs, err := f.Next(ctx, quiet.C)
		if err != nil {
			t.end(err)
			return
		}
		if len(msgs) == 0 {
			t.forget()
			quiet.Stop() // the tail is empty until the next message
			continue
		}
		quiet.Reset(time.Second)
		t.add(ctx, msgs, &unkept)
	}
}

// sync finds the end of the record. Readers read earlier events themselves.
func (t *liveTail) sync(ctx context.Context, f *store.Feed) error {
	for try := 0; ; {
		got, err := t.l.conn.DirectGet(ctx, t.stream, store.GetRequest{Last: t.subject})
		if err == nil && len(got) == 0 {
			t.setBase(position{}, false)
			return nil
		}
		if err == nil {
			tail, err := tailOf(got[0])
			if err != nil {
				return err
			}
			f.SkipTo(tail.rev)
			t.setBase(position{seq: tail.Last, rev: tail.rev}, tail.Finished != nil)
			return nil
		}
		if !t.l.conn.Backoff(ctx, &try) {
			return ctx.Err()
		}
	}
}

func (t *liveTail) setBase(p position, fin bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.synced, t.base, t.last, t.fin = true, p, p.seq, fin
	t.announce()
}

// add appends messages to the live end, one after the other, because compressed ones grow
// when they are decoded.
func (t *liveTail) add(ctx context.Context, msgs []store.Message, live *unkept) {
	t.mu.Lock()
	last := t.last
	t.mu.Unlock()
	for _, m := range msgs {
		if chunks, ok := t.l.decode(ctx, t.ref, last, m); ok {
			last = chunks[len(chunks)-1].seq
			live.restore(chunks)
			t.put(chunks)
		}
	}
}

// put appends the decoded chunks of one message.
func (t *liveTail) put(chunks []chunk) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range chunks {
		t.recent = append(t.recent, c)
		t.size += c.size
		t.last = c.seq
		if n := len(c.events); n > 0 {
			_, fin := c.events[n-1].Body.(process.Finished)
			t.fin = t.fin || fin
		}
	}
	t.trim(recentBytes)
	t.announce()
}

// trim drops the oldest messages until at most limit bytes remain.
func (t *liveTail) trim(limit int) {
	n := 0
	for n < len(t.recent) && t.size > limit {
		t.size -= t.recent[n].size
		t.base = t.recent[n].position
		n++
	}
	if n == len(t.recent) {
		t.recent = nil
		return
	}
	clear(t.recent[:n])
	t.recent = t.recent[n:]
}

// forget releases the memory of a quiet record.
func (t *liveTail) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.trim(0)
}

func (t *liveTail) finished() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.fin
}

func (t *liveTail) end(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.err = err
	t.announce()
}

func (t *liveTail) announce() {
	close(t.changed)
	t.changed = make(chan struct{})
}
