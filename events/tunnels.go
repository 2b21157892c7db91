package events

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/mux"
)

// Tunnels are a service's ways to hosts for bytes that are no events, one tunnel
// a host, made when it is first needed. Its methods may be called concurrently.
type Tunnels struct {
	l      *Log
	ctx    context.Context //nolint:containedctx // the life of all tunnels
	cancel context.CancelFunc
	wg     sync.WaitGroup
	n      atomic.Uint64 // tunnels made

	mu   sync.Mutex
	ways map[string]*way // by host
}

// way is the way to a host.
type way struct {
	turn chan struct{} // has room for the one that may look at link, or make it
	link *outward      // nil: none was made
}

// outward is a tunnel to one life of a host.
type outward struct {
	*tunnel
	epoch  uint64
	cancel context.CancelFunc
}

const (
	tunnelUp   = ".up"
	tunnelDown = ".down"

	// tunnelUnused is how long a tunnel without streams is kept.
	tunnelUnused = time.Minute
	// tunnelHello is how long a host may take to answer a new tunnel.
	tunnelHello = 3 * time.Second
	// tunnelsAtOnce is how many new tunnels may wait to be served.
	tunnelsAtOnce = 64
)

// Tunnels gives the ways to hosts; Close ends them.
func (l *Log) Tunnels() *Tunnels {
	ctx, cancel := context.WithCancel(context.Background())
	return &Tunnels{l: l, ctx: ctx, cancel: cancel, ways: make(map[string]*way)}
}

// Close ends all tunnels and their streams.
func (t *Tunnels) Close() {
	t.cancel()
	t.wg.Wait()
}

// Open opens a stream to what target names at the given life of a host. Errors
// are the host's, or Unavailable where it cannot be reached before ctx ends. A
// tunnel that broke is made anew, and an outage of NATS is waited out.
func (t *Tunnels) Open(ctx context.Context, host string, epoch uint64, target string) (*mux.Stream, error) {
	for try, broken := 0, 0; ; {
		s, again, err := t.tryOpen(ctx, host, epoch, target)
		if err == nil || !again || ctx.Err() != nil || t.ctx.Err() != nil {
			return s, err
		}
		if kind.Is(err, kind.Deadline) || t.l.nc.IsConnected() {
			broken++
		}
		if broken > tunnelTries || !t.l.pause(ctx, &try) {
			return nil, err
		}
	}
}

// tunnelTries is how many more tunnels are made for one Open while NATS is there:
// after an outage its store, and then the host, are back a moment later.
const tunnelTries = 8

// tryOpen is one try of Open; again says that another tunnel may do.
func (t *Tunnels) tryOpen(ctx context.Context, host string, epoch uint64, target string) (s *mux.Stream, again bool, err error) {
	o, err := t.to(ctx, host, epoch)
	if err != nil {
		return nil, kind.Is(err, kind.Unavailable), err
	}
	if s, err = o.mux.Open(ctx, target); err != nil {
		return nil, o.mux.Err() != nil, err
	}
	return s, false, nil
}

// way gives the way to a host. Each has turns of its own: a tunnel may take seconds to
// make, and those to other hosts do not wait for it.
func (t *Tunnels) way(host string) *way {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.ways[host]
	if w == nil {
		w = &way{turn: make(chan struct{}, 1)}
		t.ways[host] = w
	}
	return w
}

// to gives the tunnel to a host, which it makes if there is none.
func (t *Tunnels) to(ctx context.Context, host string, epoch uint64) (*outward, error) {
	w := t.way(host)
	select {
	case w.turn <- struct{}{}:
		defer func() { <-w.turn }()
	case <-ctx.Done():
		return nil, unavailable("tunnel", host, ctx.Err())
	}
	if o := w.link; o != nil {
		if o.mux.Err() == nil && o.epoch >= epoch {
			return o, nil
		}
		o.cancel() // it broke, or that life of the host is over
	}
	if t.ctx.Err() != nil {
		return nil, kind.New(kind.Unavailable, "tunnel", host, "the service ends")
	}
	door := doorSubject(host)
	id := t.l.id + "-" + strconv.FormatUint(t.n.Add(1), 36)
	if _, err := t.l.publishPlain(ctx, door, []byte(id)); err != nil {
		return nil, err
	}
	in := door + "." + id
	life, cancel := context.WithCancel(t.ctx)
	o := &outward{
		tunnel: t.l.newTunnel(in+tunnelDown, in+tunnelUp, mux.Config{}),
		epoch:  epoch, cancel: cancel,
	}
	o.first = t.l.tunnels.hello
	w.link = o
	t.wg.Go(func() {
		defer cancel()
		if err := o.run(life); !errors.Is(err, context.Canceled) {
			t.l.log.Warn("a tunnel broke", "host", host, "err", err)
		}
	})
	t.wg.Go(func() { o.rest(life) })
	return o, nil
}

// rest ends a tunnel that nobody used for a while.
func (o *outward) rest(ctx context.Context) {
	tick := time.NewTicker(tunnelUnused)
	defer tick.Stop()
	for used := true; ; {
		select {
		case <-tick.C:
			now := o.mux.Count() > 0
			if !now && !used {
				o.cancel()
				return
			}
			used = now
		case <-ctx.Done():
			return
		}
	}
}

// ServeTunnels takes the streams that others open to a host, until ctx ends.
// accept is mux.Config.Accept. Tunnels that were begun before are not served.
func (l *Log) ServeTunnels(ctx context.Context, host string, accept func(*mux.Stream)) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// Only what comes live counts: whoever asked while nobody heard asks again.
	door := doorSubject(host)
	knocks := make(chan *nats.Msg, tunnelsAtOnce)
	sub, err := l.nc.ChanSubscribe(livePrefix+door, knocks)
	if err != nil {
		return unavailable("serve tunnels", host, err)
	}
	defer sub.Unsubscribe() //nolint:errcheck // it fails only when the connection has gone with it
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case msg := <-knocks:
			id := string(msg.Data)
			if !plainToken(id) {
				continue
			}
			wg.Go(func() { l.serveTunnel(ctx, door+"."+id, accept) })
		}
	}
}

func (l *Log) serveTunnel(ctx context.Context, name string, accept func(*mux.Stream)) {
	t := l.newTunnel(name+tunnelUp, name+tunnelDown, mux.Config{Even: true, Accept: accept})
	if err := t.run(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, errTunnelGone) {
		l.log.Warn("a tunnel broke", "tunnel", name, "err", err)
	}
}

// plainToken reports whether s may be one token of a subject.
func plainToken(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'z') && c != '-' {
			return false
		}
	}
	return len(s) > 0 && len(s) <= 64
}
