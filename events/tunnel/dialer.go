package tunnel

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/mux"
)

// Dialer manages a service's tunnels to hosts for byte streams that are not events, one
// per host, created on demand. Its methods may be called concurrently.
type Dialer struct {
	l      *Transport
	ctx    context.Context // bounds all tunnels
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu    sync.Mutex
	slots map[string]*hostSlot // by host
}

// hostSlot is the slot for the tunnel to one host.
type hostSlot struct {
	sem  chan struct{} // a semaphore of one: guards link and its creation
	link *outbound     // nil: not created
}

// outbound is a tunnel to one run of a host.
type outbound struct {
	*tunnel
	epoch  uint64
	cancel context.CancelFunc
}

const (
	up   = ".up"
	down = ".down"

	// unusedAfter is how long an unused tunnel stays open.
	unusedAfter = time.Minute
	// helloTimeout is the timeout for a host's answer to a new tunnel.
	helloTimeout = 3 * time.Second
	// backlog is the queue length for new tunnels.
	backlog = 64
)

// Tunnels returns a manager of tunnels; Close closes them.
func (l *Transport) Tunnels() *Dialer {
	ctx, cancel := context.WithCancel(context.Background())
	return &Dialer{l: l, ctx: ctx, cancel: cancel, slots: make(map[string]*hostSlot)}
}

// Close closes all tunnels and their streams.
func (t *Dialer) Close() {
	t.cancel()
	t.wg.Wait()
}

// Open opens a stream to target on the given run of a host. It returns the host's errors,
// or Unavailable if the host cannot be reached before ctx ends. It replaces a broken tunnel
// and waits through an outage of NATS.
func (t *Dialer) Open(ctx context.Context, host string, epoch uint64, target string) (*mux.Stream, error) {
	for try, broken := 0, 0; ; {
		s, retry, err := t.tryOpen(ctx, host, epoch, target)
		if err == nil || !retry || ctx.Err() != nil || t.ctx.Err() != nil {
			return s, err
		}
		if kind.Is(err, kind.Deadline) || t.l.conn.Connected() {
			broken++
		}
		if broken > maxTries || !t.l.conn.Backoff(ctx, &try) {
			return nil, err
		}
	}
}

// maxTries is how many more tunnels one Open creates while NATS is connected: after an
// outage its store, and then the host, are back a moment later.
const maxTries = 8

// tryOpen is one attempt of Open; retry reports that another tunnel may succeed.
func (t *Dialer) tryOpen(ctx context.Context, host string, epoch uint64, target string) (s *mux.Stream, retry bool, err error) {
	o, err := t.tunnelTo(ctx, host, epoch)
	if err != nil {
		return nil, kind.Is(err, kind.Unavailable), err
	}
	if s, err = o.mux.Open(ctx, target); err != nil {
		return nil, o.mux.Err() != nil, err
	}
	return s, false, nil
}

// slot returns the slot of a host. Each has its own semaphore: creating a tunnel may take
// seconds, and tunnels to other hosts do not wait for it.
func (t *Dialer) slot(host string) *hostSlot {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.slots[host]
	if w == nil {
		w = &hostSlot{sem: make(chan struct{}, 1)}
		t.slots[host] = w
	}
	return w
}

// tunnelTo returns the tunnel to a host, creating it if necessary.
func (t *Dialer) tunnelTo(ctx context.Context, host string, epoch uint64) (*outbound, error) {
	w := t.slot(host)
	select {
	case w.sem <- struct{}{}:
		defer func() { <-w.sem }()
	case <-ctx.Done():
		return nil, store.Unavailable("tunnel", host, ctx.Err())
	}
	if o := w.link; o != nil {
		if o.mux.Err() == nil && o.epoch >= epoch {
			return o, nil
		}
		o.cancel() // it broke, or that run of the host has ended
	}
	if t.ctx.Err() != nil {
		return nil, kind.New(kind.Unavailable, "tunnel", host, "the service is shutting down")
	}
	subject := tunnelSubject(host)
	id := t.l.conn.ID() + "-" + strconv.FormatUint(t.l.created.Add(1), 36)
	if _, err := t.l.conn.PublishPlain(ctx, subject, []byte(id)); err != nil {
		return nil, err
	}
	in := subject + "." + id
	runCtx, cancel := context.WithCancel(t.ctx)
	o := &outbound{
		tunnel: t.l.newTunnel(in+down, in+up, mux.Config{}),
		epoch:  epoch, cancel: cancel,
	}
	o.first = t.l.times.hello
	w.link = o
	t.wg.Go(func() {
		defer cancel()
		if err := o.run(runCtx); !errors.Is(err, context.Canceled) {
			t.l.conn.Log().Warn("tunnel failed", "host", host, "err", err)
		}
	})
	t.wg.Go(func() { o.closeUnused(runCtx) })
	return o, nil
}

// closeUnused closes the tunnel when it has been unused for a while.
func (o *outbound) closeUnused(ctx context.Context) {
	tick := time.NewTicker(unusedAfter)
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

// ServeTunnels accepts the streams that others open to a host, until ctx ends. accept is
// mux.Config.Accept. Tunnels requested before are not served.
func (l *Transport) ServeTunnels(ctx context.Context, host string, accept func(*mux.Stream)) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// Only live requests count: a client without an answer retries.
	subject := tunnelSubject(host)
	return l.conn.Listen(ctx, subject, backlog, func(data []byte) {
		if id := string(data); plainToken(id) {
			wg.Go(func() { l.serveTunnel(ctx, subject+"."+id, accept) })
		}
	})
}

func (l *Transport) serveTunnel(ctx context.Context, name string, accept func(*mux.Stream)) {
	t := l.newTunnel(name+up, name+down, mux.Config{Even: true, Accept: accept})
	if err := t.run(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, errGone) {
		l.conn.Log().Warn("tunnel failed", "tunnel", name, "err", err)
	}
}

// plainToken reports whether s is a valid token of a subject.
func plainToken(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'z') && c != '-' {
			return false
		}
	}
	return len(s) > 0 && len(s) <= 64
}

// tunnelSubject returns the subject that announces new tunnels to a host. Messages through a
// tunnel have its id and ".up" (to the host) or ".down" appended.
func tunnelSubject(host string) string { return streams.TunnelPrefix + host }
