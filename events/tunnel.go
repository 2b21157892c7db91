package events

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

// tunneling is the part of a Log that opens and serves tunnels.
type tunneling struct {
	conn  *store.Conn
	times tunnelTimes
}

// A tunnel carries byte streams (package mux) between two services. Each direction is a
// subject with one writer and one message in flight, during which further frames are
// coalesced. Messages are numbered, so that a duplicate is dropped and a hole ends the
// tunnel. A tunnel does not survive a break: data sent until then may or may not have
// arrived, and the streams end with an error.
type tunnel struct {
	l     *tunneling
	mux   *mux.Mux
	in    string // subject written by the other end
	out   string // subject written by this end
	wake  chan struct{}
	first time.Duration // timeout of the other end's first message

	pings atomic.Int32 // own pings stored since the last message of the other end
}

const (
	tunnelBatch        = 192 << 10        // bytes of streams in one message
	tunnelPing         = time.Second      // between keepalives
	tunnelMaxPings     = 6                // own pings stored without a message from the other end, after which it counts as dead
	tunnelSilence      = 15 * time.Second // of the other end, after which it counts as dead even if own pings cannot be stored
	tunnelStoreTimeout = 10 * time.Second // timeout for storing a message

	tunnelWindow = 256 << 10 // bytes of one stream, sent and not read

	// tunnelEach is the maximum number of open streams to one sandbox, which is also its
	// shim's limit. tunnelStreams is the limit for all sandboxes of a host (64 by default),
	// so that one sandbox cannot use up the tunnel.
	tunnelEach    = 128
	tunnelStreams = 64 * tunnelEach

	// tunnelBudget is the maximum memory of a tunnel's streams at each end, whatever the
	// other end does: full windows would take 2 GiB. A sandbox's streams get 4 MiB of it:
	// up to five can have full windows, and all 128 have at least 13 KiB each.
	tunnelBudget = 256 << 20
)

// tunnelTimes are the timeouts for the other end: tunnelHello and tunnelPing, except in
// tests.
type tunnelTimes struct{ hello, ping time.Duration }

// The kinds of messages. A message is 8 bytes of number, one byte of kind, and frames.
const (
	tunnelFrames = 0
	tunnelClose  = 1
	tunnelHead   = 9
)

var (
	errTunnelGone   = kind.New(kind.Unavailable, "tunnel", "", "the other end of the tunnel is gone")
	errTunnelSilent = kind.New(kind.Unavailable, "tunnel", "", "the other end of the tunnel did not respond")
	errTunnelHole   = kind.New(kind.Unavailable, "tunnel", "", "messages of the tunnel were lost")
)

func (l *tunneling) newTunnel(in, out string, cfg mux.Config) *tunnel {
	t := &tunnel{l: l, in: in, out: out, wake: make(chan struct{}, 1), first: tunnelSilence}
	cfg.Window, cfg.MaxEach, cfg.Budget, cfg.Wake = tunnelWindow, tunnelEach, tunnelBudget, t.wakeUp
	if cfg.Accept == nil { // the end that opens all streams
		cfg.MaxOpen = tunnelStreams
	} else {
		cfg.MaxStreams = tunnelStreams
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
	w := tunnelWriter{t: t}
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
func (t *tunnel) send(ctx context.Context, w *tunnelWriter) error {
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
			if t.pings.Add(1) > tunnelMaxPings {
				return errTunnelSilent
			}
		case <-back:
			back = t.l.conn.Reconnected() // check whether the stream is still the same
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// tunnelWriter writes one direction.
type tunnelWriter struct {
	t   *tunnel
	n   uint64 // number of the last message
	rev uint64 // stream sequence of the last stored message
	buf []byte

	unsure bool // it is unknown whether the last message was stored
}

func (w *tunnelWriter) head(kind byte) {
	w.n++
	w.buf = append(binary.LittleEndian.AppendUint64(w.buf[:0], w.n), kind)
}

// Put stores one message with the pending frames, once or twice.
func (w *tunnelWriter) put(ctx context.Context) error {
	w.head(tunnelFrames)
	w.buf = w.t.mux.Append(w.buf, tunnelBatch)
	try, cancel := context.WithTimeout(ctx, tunnelStoreTimeout)
	defer cancel()
	w.unsure = true
	for n := 0; ; {
		rev, err := w.t.l.conn.PublishPlain(try, w.t.out, w.buf)
		if err == nil {
			w.unsure = false
			if rev <= w.rev {
				return errTunnelHole // the stream was recreated: its messages are lost
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
func (w *tunnelWriter) close() {
	if w.unsure {
		w.n--
		w.head(tunnelClose)
		w.t.l.conn.PublishUnacked(w.t.out, w.buf) //nolint:errcheck // as below
	}
	w.head(tunnelClose)
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
			return errTunnelSilent
		}
		silence.Reset(tunnelSilence)
		t.pings.Store(0)
		for _, m := range msgs {
			if len(m.Data) < tunnelHead {
				return mux.ErrProtocol
			}
			n := binary.LittleEndian.Uint64(m.Data)
			switch {
			case n <= last:
				continue // stored twice
			case n != last+1:
				return errTunnelHole
			case m.Data[8] == tunnelClose:
				return errTunnelGone
			}
			last = n
			if err := t.handle(m.Data[tunnelHead:]); err != nil {
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
