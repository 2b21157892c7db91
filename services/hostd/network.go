package hostd

import (
	"context"
	"reflect"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/mux"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/egress"
	"github.com/millrace/millrace/services/hostd/internal/link"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

const (
	// proxyPort is where a sandbox finds its way out, on its own loopback.
	proxyPort = 3128
	// meterEvery is how often the record is told what went through it.
	meterEvery = time.Minute
)

// openEgress makes what serves the sandboxes' ways out, if there are any.
func (h *host) openEgress() (closeIt func()) {
	if !h.cfg.Egress {
		return func() {}
	}
	h.egress = egress.NewServer(egress.Config{Operator: egress.Operator{Allow: h.cfg.EgressAllow}})
	return h.egress.Close
}

// network puts what the sandbox's record says of its network in force; b.mu is
// held.
func (b *box) network(s *sandbox.State) {
	if b.h.egress == nil || b.way != nil && reflect.DeepEqual(b.net, s.Network) {
		return
	}
	b.net = s.Network
	policy := egress.NewPolicy(&b.net)
	if b.way == nil {
		b.way, b.used, b.toldUse = b.h.egress.Way(policy), s.Used, s.Used
	} else {
		b.way.SetPolicy(policy)
	}
	b.reachable = policy.Any()
	if b.conn != nil {
		b.sendNetwork(b.conn)
	}
}

// sendNetwork tells the shim of the way out; b.mu is held. Without isolation
// there is none: the sandbox's loopback is the host's.
func (b *box) sendNetwork(conn *link.Conn) {
	if !conn.Streams() {
		return // a shim of an older version has none
	}
	var n wire.Network
	if b.reachable && b.isolated() {
		n.Proxy = proxyPort
	}
	conn.Send(func(dst []byte) []byte { return wire.AppendNetwork(dst, n) })
}

func (b *box) isolated() bool {
	if b.driver == nil {
		return false
	}
	d, ok := b.h.offer(b.driver.Name())
	return ok && sandbox.Isolation(d.caps.Isolation) != sandbox.IsolationNone
}

// goOut serves a stream of the shim's: a connection to the proxy.
func (b *box) goOut(s *mux.Stream) {
	b.mu.Lock()
	way := b.way
	b.mu.Unlock()
	if way == nil || s.Target() != wire.TargetProxy {
		s.Abort(kind.New(kind.Denied, "go out", string(b.id), "the sandbox has no network"))
		return
	}
	b.h.wg.Go(func() { way.Serve(s) })
}

// use is what went through the way out and is not on record yet.
func (b *box) use(s *sandbox.State) []sandbox.Body {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.way == nil || s.Over() || s.Phase == sandbox.PhaseRequested || s.Phase == sandbox.PhasePlaced {
		return nil
	}
	total := b.used
	sent, received := b.way.Used()
	total.Sent += sent
	total.Received += received
	if total == b.toldUse {
		return nil
	}
	b.toldUse = total
	return []sandbox.Body{total}
}

// meter puts what goes out of the sandboxes on record, until ctx ends.
func (h *host) meter(ctx context.Context) error {
	if h.egress == nil {
		return nil
	}
	tick := time.NewTicker(meterEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		h.mu.Lock()
		boxes := make([]*box, 0, len(h.boxes))
		for _, b := range h.boxes {
			boxes = append(boxes, b)
		}
		h.mu.Unlock()
		for _, b := range boxes {
			_, err := h.view.ChangeSandbox(ctx, b.id, func(s sandbox.State) ([]sandbox.Body, error) { return b.use(&s), nil })
			if err != nil && ctx.Err() == nil {
				h.slog.Warn("what went out could not be put on record", "sandbox", b.id, "err", err)
			}
		}
	}
}
