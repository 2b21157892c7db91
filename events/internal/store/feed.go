package store

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/millrace/millrace/events/internal/streams"
)

// Feed yields the stored messages of a subject, or of a whole stream, in order, each once:
// from the store until it has caught up, then as they are republished. It accepts a live
// message only if that follows the last one returned, and reads all others from the store.
// It belongs to one goroutine.
type Feed struct {
	l       *Conn
	stream  string
	subject string    // one subject, or ">" for a whole stream
	end     *end      // of the stream, as this process knows it; nil: not kept
	last    uint64    // stream sequence of the last message returned
	since   time.Time // of the first message to return; zero: all after last

	Unstored  func(data []byte) // called by Next for a live message that is not stored, in order; nil: it is ignored
	sub       *nats.Subscription
	live      chan *nats.Msg
	dropped   int
	reconnect <-chan struct{}
	behind    bool   // the store may have more messages
	target    uint64 // highest live message seen beyond last: the store has at least this
	tries     int    // consecutive reads that failed
	misses    int    // consecutive reads from a replica that did not have target
	idle      *time.Timer
	heard     bool          // a live message arrived since idle was set
	silence   time.Duration // until the next probe
}

const (
	liveBuffer = 128
	// A feed without messages reads from the store after probeFirst to twice that, then at
	// growing intervals, so that a lost live message stays unseen for at most probeMax. While
	// messages arrive there is nothing to find: each one shows whether another one was lost.
	probeFirst = 2 * time.Second
	probeMax   = 32 * time.Second
)

// Follow opens a feed of the messages stored after stream sequence last. The feed is
// attached to the live end when follow returns.
func (l *Conn) Follow(stream, subject string, last uint64) (*Feed, error) {
	return l.follow(&Feed{l: l, stream: stream, subject: subject, last: last, behind: true})
}

// FollowNew is Follow for a subject under which nothing was stored before the call. The feed
// reads nothing from the store until a live message is missing.
func (l *Conn) FollowNew(stream, subject string) (*Feed, error) {
	return l.follow(&Feed{l: l, stream: stream, subject: subject})
}

func (l *Conn) follow(f *Feed) (*Feed, error) {
	f.end = l.Ends.of(f.stream)
	f.live, f.reconnect, f.silence = make(chan *nats.Msg, liveBuffer), l.Reconnected(), probeFirst
	f.idle = time.NewTimer(f.silence)
	sub, err := l.nc.ChanSubscribe(streams.LivePrefix+f.source(), f.live)
	if err != nil {
		return nil, err
	}
	f.sub = sub
	return f, nil
}

// source returns the subject under which the feed's messages are stored.
func (f *Feed) source() string {
	if f.whole() {
		return streams.SourceOf(f.stream)
	}
	return f.subject
}

func (f *Feed) whole() bool { return f.subject == ">" }

// Last returns the stream sequence of the last message returned.
func (f *Feed) Last() uint64 { return f.last }

// SkipTo makes the feed continue after a stream sequence.
func (f *Feed) SkipTo(last uint64) { f.last = last }

// Since limits a feed that starts at the beginning to messages stored at or after a time.
func (f *Feed) Since(at time.Time) { f.since = at }

// Close ends the feed.
func (f *Feed) Close() {
	f.idle.Stop()
	f.sub.Unsubscribe()
}

// Next returns the next messages, at least one, in order. When quiet fires first, it
// returns none. It fails only if ctx ends or the connection is closed.
func (f *Feed) Next(ctx context.Context, quiet <-chan time.Time) ([]Message, error) {
	for {
		if f.behind {
			got, err := f.catchUp(ctx)
			if len(got) > 0 || err != nil {
				return got, err
			}
			if f.behind { // perhaps nothing arrives that causes another read
				select {
				case msg := <-f.live:
					if got := f.accept(msg); len(got) > 0 {
						return got, nil
					}
				case <-quiet:
					return nil, nil
				default:
				}
				continue
			}
		}
		select {
		case msg := <-f.live:
			f.heard = true
			if got := f.accept(msg); len(got) > 0 {
				return got, nil
			}
		case <-f.reconnect:
			f.reconnect = f.l.Reconnected()
			f.behind = true
			// The first read may be answered by a replica that lags.
			f.silence = probeFirst
			f.idle.Reset(f.silence)
		case <-f.idle.C:
			f.probe()
		case <-quiet:
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// probe makes the feed read from the store if no live message arrived for a while.
func (f *Feed) probe() {
	if f.heard {
		f.heard, f.silence = false, probeFirst
	} else {
		f.behind, f.silence = true, min(2*f.silence, probeMax)
	}
	f.idle.Reset(f.silence)
}

// accept takes a live message and all that are queued behind it, as long as they follow
// each other.
func (f *Feed) accept(msg *nats.Msg) []Message {
	var got []Message
	for {
		m, err := parseStored(msg)
		switch {
		case err != nil && f.Unstored != nil:
			f.Unstored(msg.Data)
		case err != nil || m.Seq <= f.last:
		case f.follows(&m):
			f.last = m.Seq
			f.end.raise(m.Seq)
			got = append(got, m)
		default:
			f.behind, f.target = true, max(f.target, m.Seq)
			return got
		}
		select {
		case msg = <-f.live:
		default:
			if n, err := f.sub.Dropped(); err == nil && n != f.dropped {
				f.behind, f.dropped = true, n
			}
			return got
		}
	}
}

func (f *Feed) follows(m *Message) bool {
	if f.whole() {
		return m.Seq == f.last+1
	}
	return m.Prev == f.last
}

// catchUp reads from the store what follows the last message returned. It is done when the
// store has no more and no live message was seen beyond it. Until then behind stays set,
// and catchUp must be called again.
func (f *Feed) catchUp(ctx context.Context) ([]Message, error) {
	got, err := f.read(ctx)
	if len(got) > 0 {
		f.last, f.tries, f.misses = got[len(got)-1].Seq, 0, 0
		return got, nil
	}
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case f.l.Closed():
		return nil, nats.ErrConnectionClosed
	case err != nil:
		f.l.Backoff(ctx, &f.tries)
		return nil, ctx.Err()
	case f.last < f.target && f.misses < LaggingTries:
		// This replica does not have yet what the leader already republished.
		Backoff(ctx, f.misses)
		f.misses++
		return nil, ctx.Err()
	case f.last < f.target:
		return f.fromLeader(ctx)
	}
	f.behind, f.target, f.tries, f.misses = false, 0, 0, 0
	return nil, nil
}

// fromLeader reads the next message from the leader, because the replica does not have it.
// If the leader does not have it either, it fell out of retention.
func (f *Feed) fromLeader(ctx context.Context) ([]Message, error) {
	m, ok, err := f.l.LeaderGet(ctx, f.stream, GetRequest{Seq: f.last + 1, Next: f.subject})
	switch {
	case err != nil:
		f.l.Backoff(ctx, &f.tries)
		return nil, ctx.Err()
	case !ok:
		f.behind, f.target, f.tries, f.misses = false, 0, 0, 0
		return nil, nil
	}
	f.last, f.tries = m.Seq, 0
	return []Message{m}, nil
}

// Limits for one read of a whole stream. Its messages are small, a new reader waits for all
// of them, and the server counts the rest of the stream at each read.
const (
	wholeBatch = 16 << 10
	wholeBytes = 8 << 20
)

// read reads the next messages from the store. A single subject usually has none or a few, which
// are found without a search in the store.
func (f *Feed) read(ctx context.Context) ([]Message, error) {
	if !f.whole() && f.last > 0 {
		if got, whole, err := f.l.readSince(ctx, f.stream, f.subject, f.last); whole || err != nil {
			return got, err
		}
	}
	req := GetRequest{Seq: f.last + 1, Next: f.subject, Batch: BatchSize, MaxBytes: BatchBytes}
	if f.whole() {
		req.Batch, req.MaxBytes = wholeBatch, wholeBytes
	}
	if f.last == 0 && !f.since.IsZero() {
		req.Seq, req.StartTime = 0, &f.since
	}
	return f.l.DirectGet(ctx, f.stream, req)
}

// LaggingTries is how often a replica is asked for a message that the leader has
// republished, 1 to 500 ms apart: 2 s in all. Then the leader is asked.
const LaggingTries = 12
