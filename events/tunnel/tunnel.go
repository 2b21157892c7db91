package tunnel

import (
	"context"
	"encoding/binary"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/mux"
	"github.com/millrace/millrace/internal/waiting"
)

// Transport opens and serves tunnels. Its methods may be called concurrently.
type Transport struct {
	conn  *store.Conn
	times timeouts

	created atomic.Uint64 // tunnels, by all dialers: their names must differ
}

// NewTransport returns a Transport.
func NewTransport(conn *store.Conn) *Transport {
	return &Transport{conn: conn, times: timeouts{hello: helloTimeout, ping: pingEvery}}
}

// A tunnel carries byte streams (package mux) between two services. Each direction is a
// subject with one writer and one message in flight, during which further frames are
// coalesced. Messages are numbered, so that a duplicate is dropped and a hole ends the
// tunnel. A tunnel does not survive a break: data sent until then may or may not have
// arrived, and the streams end with an error.
type tunnel struct {
	l     *Transport
	mux   *mux.Mux
	in    string // subject written by the other end
	out   string // subject written by this end
	wake  chan struct{}
	first time.Duration // timeout of the other end's first message

	pings atomic.Int32 // own pings stored since the last message of the other end
}

const (
	batchBytes   = 192 << 10        // bytes of streams in one message
	pingEvery    = time.Second      // between keepalives
	maxPings     = 6                // own pings stored without a message from the other end, after which it counts as dead
	maxSilence   = 15 * time.Second // of the other end, after which it counts as dead even if own pings cannot be stored
	storeTimeout = 10 * time.Second // timeout for storing a message

	streamWindow = 256 << 10 // bytes of one stream, sent and not read

	// maxEach is the maximum number of open streams to one sandbox, which is also its
	// shim's limit. maxStreams is the limit for all sandboxes of a host (64 by default),
	// so that one sandbox cannot use up the tunnel.
	maxEach    = 128
	maxStreams = 64 * maxEach

	// streamBudget is the maximum memory of a tunnel's streams at each end, whatever the
	// other end does: full windows would take 2 GiB. A sandbox's streams get 4 MiB of it:
	// up to five can have full windows, and all 128 have at least 13 KiB each.
	streamBudget = 256 << 20
)

// timeouts are the timeouts for the other end: helloTimeout and pingEvery, except in
// tests.
type timeouts struct{ hello, ping time.Duration }

// The kinds of messages. A message is 8 bytes of number, one byte of kind, and frames.
const (
	kindFrames = 0
	kindClose  = 1
	headBytes  = 9
)

var (
	errGone   = kind.New(kind.Unavailable, "tunnel", "", "the other end of the tunnel is gone")
	errSilent = kind.New(kind.Unavailable, "tunnel", "", "the other end of the tunnel did not respond")
	errHole   = kind.New(kind.Unavailable, "tunnel", "", "messages of the tunnel were lost")
)

func (l *Transport) newTunnel(in, out string, cfg mux.Config) *tunnel {
	t := &tunnel{l: l, in: in, out: out, wake: make(chan struct{}, 1), first: maxSilence}
	cfg.Window, cfg.MaxEach, cfg.Budget, cfg.Wake = streamWindow, maxEach, streamBudget, t.wakeUp
	if cfg.Accept == nil { // the end that opens all streams
		cfg.MaxOpen = maxStreams
	} else {
		cfg.MaxStreams = maxStreams
	}
	t.mux = mux.New(cfg)
	return t
}

func (t *tunnel) wakeUp() {
	waiting.Notify(t.wake)
}

// run carries frames until the tunnel breaks or ctx ends, and returns the reason.
func (t *tunnel) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w := writer{t: t}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		cancel(t.send(ctx, &w))
	}()
	cancel(t.receive(ctx))
	<-sent
	w.close()
	err := context.Cause(ctx)
	t.mux.Break(store.Unavailable("tunnel", "", err))
	return err
}

// send stores the streams' frames and keepalives. The other end's silence counts only while
// own messages are stored: an outage of NATS silences both.
func (t *tunnel) send(ctx context.Context, w *writer) error {
	ping := time.NewTicker(t.l.times.ping)
	defer ping.Stop()
	back := t.l.conn.Reconnected()
	for {
		if err := w.put(ctx); err != nil {
			return err
		}
		for t.mux.Pending() {
			if err := w.put(ctx); err != nil {
				return err
			}
		}
		select {
		case <-t.wake:
		case <-ping.C:
			if t.pings.Add(1) > maxPings {
				return errSilent
			}
		case <-back:
			back = t.l.conn.Reconnected() // check whether the stream is still the same
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// writer writes one direction.
type writer struct {
	t   *tunnel
	n   uint64 // number of the last message
	rev uint64 // stream sequence of the last stored message
	buf []byte

	unsure bool // it is unknown whether the last message was stored
}

func (w *writer) head(kind byte) {
	w.n++
	w.buf = append(binary.LittleEndian.AppendUint64(w.buf[:0], w.n), kind)
}

// Put stores one message with the pending frames, once or twice.
func (w *writer) put(ctx context.Context) error {
	w.head(kindFrames)
	w.buf = w.t.mux.Append(w.buf, batchBytes)
	try, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	w.unsure = true
	for n := 0; ; {
		rev, err := w.t.l.conn.PublishPlain(try, w.t.out, w.buf)
		if err == nil {
			w.unsure = false
			if rev <= w.rev {
				return errHole // the stream was recreated: its messages are lost
			}
			w.rev = rev
			return nil
		}
		if !w.t.l.conn.Backoff(try, &n) {
			return err
		}
	}
}

// Close announces the end of the tunnel, in a single attempt. If it is unknown whether the
// last message was stored, it also announces it under that message's number, which would
// otherwise look lost.
func (w *writer) close() {
	if w.unsure {
		w.n--
		w.head(kindClose)
		w.t.l.conn.PublishUnacked(w.t.out, w.buf) //nolint:errcheck // as below
	}
	w.head(kindClose)
	w.t.l.conn.PublishUnacked(w.t.out, w.buf) //nolint:errcheck // the other end times out
}

// receive passes the other end's frames to the streams.
func (t *tunnel) receive(ctx context.Context) error {
	feed, err := t.l.conn.Follow(streams.Tunnels, t.in, 0)
	if err != nil {
		return store.Unavailable("tunnel", "", err)
	}
	defer feed.Close()
	var last uint64
	silence := time.NewTimer(t.first)
	defer silence.Stop()
	for {
		msgs, err := feed.Next(ctx, silence.C)
		if err != nil {
			return err
		}
		if len(msgs) == 0 {
			return errSilent
		}
		silence.Reset(maxSilence)
		t.pings.Store(0)
		for _, m := range msgs {
			if len(m.Data) < headBytes {
				return mux.ErrProtocol
			}
			n := binary.LittleEndian.Uint64(m.Data)
			switch {
			case n <= last:
				continue // stored twice
			case n != last+1:
				return errHole
			case m.Data[8] == kindClose:
				return errGone
			}
			last = n
			if err := t.handle(m.Data[headBytes:]); err != nil {
				return err
			}
		}
	}
}

func (t *tunnel) handle(b []byte) error {
	for len(b) > 0 {
		ty, payload, rest, ok := mux.Split(b)
		if !ok {
			return mux.ErrProtocol
		}
		if err := t.mux.Handle(ty, payload); err != nil {
			return err
		}
		b = rest
	}
	return nil
}
