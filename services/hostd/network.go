package hostd

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"time"

	"github.com/millrace/millrace/events/identity"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/mux"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/egress"
	"github.com/millrace/millrace/services/hostd/internal/link"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

const (
	// proxyPort is the port of the host's proxy, on the sandbox's own loopback.
	proxyPort = 3128
	// defaultMeterEvery is the interval in which traffic is counted. It is recorded when it grew
	// by a hundredth, or an hour has passed: a sandbox that sends for a month has a few thousand
	// lines in its record, not one per minute.
	defaultMeterEvery = time.Minute
	meterPart         = 100
	meterMost         = 60 // intervals after which a smaller change is recorded, too
	// authorityFile has the certificate authority that sandboxes with transforms trust, in the
	// data directory.
	authorityFile = "egress-ca.pem"
)

// openEgress starts the egress proxy, if sandboxes may use the network.
func (h *host) openEgress() (closeIt func(), err error) {
	if !h.cfg.Egress {
		return func() {}, nil
	}
	if h.authority, err = egress.OpenAuthority(filepath.Join(h.cfg.DataDir, authorityFile)); err != nil {
		return nil, fmt.Errorf("open certificate authority of the proxy: %w", err)
	}
	cfg := egress.Config{Operator: sandbox.Operator{Allow: h.cfg.EgressAllow}, Authority: h.authority}
	if h.cfg.EgressDNS != "" {
		cfg.Resolver = egress.ResolverAt(h.cfg.EgressDNS)
	}
	h.egress = egress.NewServer(cfg)
	return h.egress.Close, nil
}

// openSealer opens the sealer of secrets in records; it waits for the log.
func (h *host) openSealer(ctx context.Context) error {
	if h.egress == nil {
		return nil
	}
	secret, err := h.log.Secret(ctx, sandbox.SealerSecret)
	if err != nil {
		return fmt.Errorf("read secret: %w", err)
	}
	if h.sealer, err = sandbox.NewSealer(secret); err == nil {
		h.ring = identity.NewRing(h.sealer)
	}
	return err
}

// applyNetwork applies the network settings in the sandbox's record; b.mu is held.
func (b *box) network(s *sandbox.State) {
	if b.h.egress == nil || b.way != nil && reflect.DeepEqual(b.net, s.Network) {
		return
	}
	b.net = s.Network
	policy := egress.NewPolicy(&b.net, b.h.sealer.Open)
	b.reachable, b.transformed = policy.Any(), policy.Transforms()
	switch {
	case b.conn != nil:
		b.sendNetwork(b.conn) // before the policy is in force: the CA that it uses must be trusted then
	case !b.wide():
		b.unplug()
	}
	if b.way == nil {
		b.way = b.h.egress.Way(policy, sandbox.Markers{Secret: b.secret, Token: b.token})
	} else {
		b.way.SetPolicy(policy)
	}
}

// secret returns the current value of a secret of the sandbox's tenant.
func (b *box) secret(name string) (string, error) {
	for _, s := range b.h.view.TenantSecrets(b.tenant) {
		if s.Name == strings.ToLower(name) {
			return b.h.sealer.Open(s.Sealed)
		}
	}
	return "", kind.Newf(kind.Precondition, "transform", string(b.id), "secret %q does not exist", name)
}

// token returns a new token of that name, which identifies the sandbox.
func (b *box) token(name string) (string, error) {
	t, ok := b.req.Identity.Token(name)
	if !ok {
		return "", kind.Newf(kind.Precondition, "transform", string(b.id), "the sandbox has no token %q", name)
	}
	about := identity.Subject{
		Issuer: b.req.Identity.Issuer, Team: b.tenant, Template: cmp.Or(b.req.Built, b.req.Template), Sandbox: string(b.id),
	}
	return b.h.ring.Token(b.h.view.SigningKeys(), &about, t.Audience, time.Now())
}

// sendNetwork sends the proxy's port and the name server to the shim; b.mu is held. Without
// isolation there is no proxy: the sandbox's loopback is the host's.
func (b *box) sendNetwork(conn *link.Conn) {
	if !conn.Streams() {
		return // a shim of an older version
	}
	var n wire.Network
	if b.reachable && b.isolated() {
		n.Proxy = proxyPort
		if b.transformed {
			n.CA = b.h.authority.PEM()
		}
	}
	n.DNS = b.plug()
	conn.Send(func(dst []byte) []byte { return wire.AppendNetwork(dst, conn.Version(), &n) })
}

// isolated reports whether the sandbox has a loopback of its own.
func (b *box) isolated() bool {
	return b.made.Isolation != "" && b.made.Isolation != sandbox.IsolationNone
}

// serveEgress serves a stream from the shim: a connection to the proxy.
func (b *box) goOut(s *mux.Stream) {
	b.mu.Lock()
	way := b.way
	b.mu.Unlock()
	if way == nil || s.Target() != wire.TargetProxy {
		s.Abort(kind.New(kind.Denied, "egress", string(b.id), "the sandbox has no network"))
		return
	}
	b.h.wg.Go(func() { way.Serve(s) })
}

// newlyUsed returns the total traffic, and whether it differs from the record.
func (b *box) newlyUsed(s *sandbox.State) (total sandbox.NetworkUsed, isNew bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.way == nil || s.Over() || s.Begins() {
		return total, false
	}
	total = b.used
	sent, received := b.way.Used()
	total.Sent += sent
	total.Received += received
	return total, total != s.Used
}

// use returns the traffic as an event, if it is new.
func (b *box) use(s *sandbox.State) []sandbox.Body {
	if total, isNew := b.newlyUsed(s); isNew {
		return []sandbox.Body{total}
	}
	return nil
}

// useDue is use, if the change is worth an event.
func (b *box) useDue(s *sandbox.State, now time.Time) []sandbox.Body {
	total, isNew := b.newlyUsed(s)
	known := s.Used.Sent + s.Used.Received
	much := total.Sent+total.Received >= known+known/meterPart
	if !isNew || !much && now.Sub(b.useTold) < meterMost*b.h.cfg.meterEvery {
		return nil
	}
	b.useTold = now
	return []sandbox.Body{total}
}

// meter records the sandboxes' traffic until ctx ends.
func (h *host) meter(ctx context.Context) error {
	if h.egress == nil {
		return nil
	}
	tick := time.NewTicker(h.cfg.meterEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			now := time.Now()
			h.tellUse(ctx, func(b *box, s *sandbox.State) []sandbox.Body { return b.useDue(s, now) })
		}
	}
}

// reportUse records the traffic of each sandbox as use returns it.
func (h *host) tellUse(ctx context.Context, use func(*box, *sandbox.State) []sandbox.Body) {
	links := h.linksUsed()
	for _, b := range h.all() {
		b.linkUsed(links)
		_, err := h.view.ChangeSandbox(ctx, b.id, func(s sandbox.State) ([]sandbox.Body, error) { return use(b, &s), nil })
		if err != nil && ctx.Err() == nil {
			h.slog.Warn("record traffic failed", "sandbox", b.id, "err", err)
		}
	}
}
