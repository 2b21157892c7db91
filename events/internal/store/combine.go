package store

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/events/kind"
)

// combiner appends messages of several records to one stream. A message goes out alone, at
// once, if nothing of this connection is in flight to the stream. What arrives meanwhile goes out
// together as a batch with one acknowledgment, each message with its own condition.
//
// The acknowledgment of a batch has the stream sequence of its last message only. That of the
// others is certain if exactly as many sequences as messages follow the last one acknowledged
// before: then no other message came between. If it is not certain, or the batch failed, each
// message is published again alone, where its condition shows whether it was stored before.
// Then there are no batches for a while: hosts that share a stream would disturb each other.
type combiner struct {
	conn   *Conn
	stream string

	mu       sync.Mutex
	inFlight int              // batches and messages alone
	large    int              // those of them that are large messages
	end      uint64           // highest stream sequence acknowledged since the last batch failed
	waiting  []*appended      // in order of arrival
	resume   time.Time        // no batches before
	pause    time.Duration    // until then, after the last batch failed
	now      func() time.Time // time.Now, except in tests
}

// appended is a message to append.
type appended struct {
	subject string
	after   uint64
	data    []byte
	turn    chan turn // receives one value
}

// turn is what a waiting message receives.
type turn struct {
	batch  []*appended // nil: none. Its first message publishes it
	stored uint64      // stream sequence; 0: not stored, or unknown. The message has to be published alone
}

const (
	minBatch     = 3        // below that, a batch has as many acknowledgments as messages
	maxBatch     = 128      // messages
	largeMessage = 16 << 10 // bytes: these do not wait, and nothing waits beside them
	minPause     = time.Second
	maxPause     = time.Minute
)

// Append is Publish for messages of output: it may store messages of several records together.
func (l *Conn) Append(ctx context.Context, stream, subject string, after uint64, data []byte) (uint64, error) {
	return l.combiners.of(l, stream).append(ctx, &appended{subject: subject, after: after, data: data})
}

// combiners are the combiners of a connection. The zero value has none.
type combiners struct {
	mu       sync.Mutex
	byStream map[string]*combiner
}

// of returns the combiner of a stream.
func (cs *combiners) of(l *Conn, stream string) *combiner {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c := cs.byStream[stream]
	if c == nil {
		c = &combiner{conn: l, stream: stream, now: time.Now}
		if cs.byStream == nil {
			cs.byStream = make(map[string]*combiner)
		}
		cs.byStream[stream] = c
	}
	return c
}

func (c *combiner) append(ctx context.Context, m *appended) (uint64, error) {
	large := len(m.data) > largeMessage
	t, err := c.enter(ctx, m, large)
	if err != nil {
		return 0, err
	}
	if len(t.batch) > 0 {
		c.publish(t.batch)
		t = <-m.turn
	}
	if t.stored != 0 {
		return t.stored, nil
	}
	seq, err := c.conn.Publish(ctx, m.subject, m.after, m.data)
	c.mu.Lock()
	defer c.mu.Unlock()
	if large {
		c.large--
	}
	c.leave(seq)
	return seq, err
}

// enter waits until m may be published, or was.
func (c *combiner) enter(ctx context.Context, m *appended, large bool) (turn, error) {
	c.mu.Lock()
	if large {
		c.large++
	}
	if c.inFlight == 0 || c.alone() {
		c.inFlight++
		c.release()
		c.mu.Unlock()
		return turn{}, nil
	}
	m.turn = make(chan turn, 1)
	c.waiting = append(c.waiting, m)
	c.mu.Unlock()
	select {
	case t := <-m.turn:
		return t, nil
	case <-ctx.Done():
	}
	c.mu.Lock()
	i := slices.Index(c.waiting, m)
	if i >= 0 {
		c.waiting = slices.Delete(c.waiting, i, i+1)
	}
	c.mu.Unlock()
	if i >= 0 {
		return turn{}, Unavailable("append", m.subject, ctx.Err())
	}
	return <-m.turn, nil // its data is in use until then
}

// alone reports whether messages must not wait for a batch; c.mu is held.
func (c *combiner) alone() bool { return c.large > 0 || c.now().Before(c.resume) }

// leave ends what was in flight, with the highest stream sequence that was acknowledged; c.mu is
// held.
func (c *combiner) leave(seq uint64) {
	c.inFlight--
	c.end = max(c.end, seq)
	c.release()
}

// release lets waiting messages go; c.mu is held.
func (c *combiner) release() {
	alone := c.alone()
	if len(c.waiting) == 0 || c.inFlight > 0 && !alone {
		return
	}
	if alone || len(c.waiting) < minBatch || c.end == 0 {
		for _, m := range c.waiting {
			m.turn <- turn{}
		}
		c.inFlight += len(c.waiting)
		c.waiting = nil
		return
	}
	n := min(len(c.waiting), maxBatch)
	batch := slices.Clone(c.waiting[:n])
	c.waiting = append(c.waiting[:0], c.waiting[n:]...)
	clear(c.waiting[len(c.waiting):cap(c.waiting)])
	c.inFlight++
	batch[0].turn <- turn{batch: batch}
}

// publish publishes a batch and tells its messages the result.
func (c *combiner) publish(batch []*appended) {
	c.mu.Lock()
	base := c.end
	c.mu.Unlock()
	n := uint64(len(batch))
	end, err := c.publishBatch(batch)
	certain := err == nil && end == base+n

	c.mu.Lock()
	defer c.mu.Unlock()
	if certain {
		c.pause = 0
	} else {
		c.end, end = 0, 0 // a stream that lost messages begins at a lower one again
		c.pause = min(max(2*c.pause, minPause), maxPause)
		c.resume = c.now().Add(c.pause)
		c.inFlight += len(batch) // each of them alone
	}
	for i, m := range batch {
		t := turn{}
		if certain {
			t.stored = base + uint64(i) + 1
		}
		m.turn <- t
	}
	c.leave(end)
}

// batchFailed reports a batch of which not every message is known to be stored.
func batchFailed(m *appended, why string) error {
	return kind.New(kind.Unavailable, "append", m.subject, "batch: "+why)
}
