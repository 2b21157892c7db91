package events

import (
	"context"
	"encoding/binary"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/mux"
)

// A tunnel carries byte streams (package mux) between two services. Each
// direction is a subject that one end writes, one message in flight: while it
// flies, what the streams have to say gathers. Every message has its number, so
// that a repetition is dropped and a hole ends the tunnel. Neither end goes on
// after a break: what streams had sent by then may or may not have come, and
// their users are told.
type tunnel struct {
	l     *Log
	mux   *mux.Mux
	in    string // subject that the other end writes
	out   string // subject that we write
	wake  chan struct{}
	first time.Duration // within which the other end must say something

	unheard atomic.Int32 // pings of ours that were stored since the other end said something
}

const (
	tunnelBatch    = 192 << 10        // bytes of streams in one message
	tunnelPing     = time.Second      // between signs of life
	tunnelUnheard  = 6                // pings of ours, stored while the other end was silent: it counts as dead
	tunnelSilence  = 15 * time.Second // of the other end, after which it counts as dead, although ours cannot be stored
	tunnelPatience = 10 * time.Second // within which a message must be stored

	tunnelWindow = 256 << 10 // bytes of one stream, sent and not read

	// tunnelEach is how many streams to one sandbox are open at a time, as many as its
	// shim takes; tunnelStreams are all, with room for those of all sandboxes of a host
	// (64 by default), so that none fills the tunnel for the others.
	tunnelEach    = 128
	tunnelStreams = 64 * tunnelEach

	// tunnelBudget is what the streams of a tunnel hold together at most, at each end,
	// whatever the other end does: as many whole windows would be 2 GiB. One sandbox's
	// have 4 MiB of it: five are as wide as can be, and all 128 have 13 KiB at least.
	tunnelBudget = 256 << 20
)

// tunnelTimes are how long an end waits for the other one: tunnelHello and tunnelPing, but
// in tests.
type tunnelTimes struct{ hello, ping time.Duration }

// The kinds of messages: 8 bytes of number, one of kind, frames.
const (
	tunnelFrames = 0
	tunnelBye    = 1
	tunnelHead   = 9
)

var (
	errTunnelGone   = kind.New(kind.Unavailable, "tunnel", "", "the other end of the tunnel is gone")
	errTunnelSilent = kind.New(kind.Unavailable, "tunnel", "", "the other end of the tunnel fell silent")
	errTunnelHole   = kind.New(kind.Unavailable, "tunnel", "", "messages of the tunnel were lost")
)

func (l *Log) newTunnel(in, out string, cfg mux.Config) *tunnel {
	t := &tunnel{l: l, in: in, out: out, wake: make(chan struct{}, 1), first: tunnelSilence}
	cfg.Window, cfg.MaxEach, cfg.Budget, cfg.Wake = tunnelWindow, tunnelEach, tunnelBudget, t.rouse
	if cfg.Accept == nil { // one end opens all streams
		cfg.MaxOpen = tunnelStreams
	} else {
		cfg.MaxStreams = tunnelStreams
	}
	t.mux = mux.New(cfg)
	return t
}

func (t *tunnel) rouse() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// run carries frames until the tunnel breaks or ctx ends, and says why.
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
	w.bye()
	err := context.Cause(ctx)
	t.mux.Break(unavailable("tunnel", "", err))
	return err
}

// send stores what the streams have to say, and signs of life. The other end's
// silence counts only while ours are stored: an outage of NATS silences both.
func (t *tunnel) send(ctx context.Context, w *tunnelWriter) error {
	ping := time.NewTicker(t.l.tunnels.ping)
	defer ping.Stop()
	back := t.l.onReconnect()
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
			if t.unheard.Add(1) > tunnelUnheard {
				return errTunnelSilent
			}
		case <-back:
			back = t.l.onReconnect() // see whether the stream is still the same
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// tunnelWriter writes one direction.
type tunnelWriter struct {
	t   *tunnel
	n   uint64 // of the last message
	rev uint64 // stream sequence of the last message that was stored
	buf []byte

	unsure bool // nobody told whether the last message was stored
}

func (w *tunnelWriter) head(kind byte) {
	w.n++
	w.buf = append(binary.LittleEndian.AppendUint64(w.buf[:0], w.n), kind)
}

// put stores one message with what is at hand, once or twice.
func (w *tunnelWriter) put(ctx context.Context) error {
	w.head(tunnelFrames)
	w.buf = w.t.mux.Append(w.buf, tunnelBatch)
	try, cancel := context.WithTimeout(ctx, tunnelPatience)
	defer cancel()
	w.unsure = true
	for n := 0; ; {
		rev, err := w.t.l.publishPlain(try, w.t.out, w.buf)
		if err == nil {
			w.unsure = false
			if rev <= w.rev {
				return errTunnelHole // the stream was made anew: what was in it is lost
			}
			w.rev = rev
			return nil
		}
		if !w.t.l.pause(try, &n) {
			return err
		}
	}
}

// bye tells the other end that there is no more to wait for, if that can be
// done at once. Where it is not known whether the last message was stored, it is said
// in its place, too: else it would look as if that had been lost.
func (w *tunnelWriter) bye() {
	if w.unsure {
		w.n--
		w.head(tunnelBye)
		w.t.l.nc.Publish(w.t.out, w.buf) //nolint:errcheck // as below
	}
	w.head(tunnelBye)
	w.t.l.nc.Publish(w.t.out, w.buf) //nolint:errcheck // then it hears silence
}

// receive hands the other end's frames to the streams.
func (t *tunnel) receive(ctx context.Context) error {
	feed, err := t.l.follow(streamTunnels, t.in, 0)
	if err != nil {
		return unavailable("tunnel", "", err)
	}
	defer feed.close()
	var last uint64
	silence := time.NewTimer(t.first)
	defer silence.Stop()
	for {
		msgs, err := feed.next(ctx, silence.C)
		if err != nil {
			return err
		}
		if len(msgs) == 0 {
			return errTunnelSilent
		}
		silence.Reset(tunnelSilence)
		t.unheard.Store(0)
		for _, m := range msgs {
			if len(m.data) < tunnelHead {
				return mux.ErrProtocol
			}
			n := binary.LittleEndian.Uint64(m.data)
			switch {
			case n <= last:
				continue // it was stored twice
			case n != last+1:
				return errTunnelHole
			case m.data[8] == tunnelBye:
				return errTunnelGone
			}
			last = n
			if err := t.handle(m.data[tunnelHead:]); err != nil {
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
