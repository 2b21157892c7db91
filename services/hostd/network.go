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

// applyNetwork applies the network settings in the sandbox's record; sb.mu is held.
func (sb *hostSandbox) applyNetwork(s *sandbox.State) {
	if sb.h.egress == nil || sb.route != nil && reflect.DeepEqual(sb.net, s.Network) {
		return
	}
	sb.net = s.Network
	policy := egress.NewPolicy(&sb.net, sb.h.sealer.Open)
	sb.reachable, sb.transformed = policy.Any(), policy.Transforms()
	switch {
	case sb.conn != nil:
		sb.sendNetwork(sb.conn) // before the policy is in force: the CA that it uses must be trusted then
	case !sb.wide():
		sb.unplug()
	}
	if sb.route == nil {
		sb.route = sb.h.egress.Route(policy, sandbox.Markers{Secret: sb.secret, Token: sb.token})
	} else {
		sb.route.SetPolicy(policy)
	}
}

// secret returns the current value of a secret of the sandbox's tenant.
func (sb *hostSandbox) secret(name string) (string, error) {
	for _, s := range sb.h.view.TenantSecrets(sb.tenant) {
		if s.Name == strings.ToLower(name) {
			return sb.h.sealer.Open(s.Sealed)
		}
	}
	return "", kind.Newf(kind.Precondition, "transform", string(sb.id), "secret %q does not exist", name)
}

// token returns a new token of that name, which identifies the sandbox.
func (sb *hostSandbox) token(name string) (string, error) {
	t, ok := sb.req.Identity.Token(name)
	if !ok {
		return "", kind.Newf(kind.Precondition, "transform", string(sb.id), "the sandbox has no token %q", name)
	}
	about := identity.Subject{
		Issuer: sb.req.Identity.Issuer, Team: sb.tenant, Template: cmp.Or(sb.req.Built, sb.req.Template), Sandbox: string(sb.id),
	}
	return sb.h.ring.Token(sb.h.view.SigningKeys(), &about, t.Audience, time.Now())
}

// sendNetwork sends the proxy's port and the name server to the shim; sb.mu is held. Without
// isolation there is no proxy: the sandbox's loopback is the host's.
func (sb *hostSandbox) sendNetwork(conn *link.Conn) {
	if !conn.HasStreams() {
		return // a shim of an older version
	}
	var n wire.Network
	if sb.reachable && sb.isolated() {
		n.Proxy = proxyPort
		if sb.transformed {
			n.CA = sb.h.authority.PEM()
		}
	}
	n.DNS = sb.plug()
	conn.Send(func(dst []byte) []byte { return wire.AppendNetwork(dst, conn.Version(), &n) })
}

// isolated reports whether the sandbox has a loopback of its own.
func (sb *hostSandbox) isolated() bool {
	return sb.created.Isolation != "" && sb.created.Isolation != sandbox.IsolationNone
}

// serveEgress serves a stream from the shim: a connection to the proxy.
func (sb *hostSandbox) serveEgress(s *mux.Stream) {
	sb.mu.Lock()
	route := sb.route
	sb.mu.Unlock()
	if route == nil || s.Target() != wire.TargetProxy {
		s.Abort(kind.New(kind.Denied, "egress", string(sb.id), "the sandbox has no network"))
		return
	}
	sb.h.wg.Go(func() { route.Serve(s) })
}

// newTraffic returns the total traffic, and whether it differs from the record.
func (sb *hostSandbox) newTraffic(s *sandbox.State) (total sandbox.NetworkUsed, isNew bool) {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	if sb.route == nil || s.Over() || s.Begins() {
		return total, false
	}
	total = sb.used
	sent, received := sb.route.Used()
	total.Sent += sent
	total.Received += received
	return total, total != s.Used
}

// traffic returns the traffic as an event, if it is new.
func (sb *hostSandbox) traffic(s *sandbox.State) []sandbox.Body {
	if total, isNew := sb.newTraffic(s); isNew {
		return []sandbox.Body{total}
	}
	return nil
}

// trafficDue is use, if the change is worth an event.
func (sb *hostSandbox) trafficDue(s *sandbox.State, now time.Time) []sandbox.Body {
	total, isNew := sb.newTraffic(s)
	known := s.Used.Sent + s.Used.Received
	much := total.Sent+total.Received >= known+known/meterPart
	if !isNew || !much && now.Sub(sb.usedReported) < meterMost*sb.h.cfg.meterEvery {
		return nil
	}
	sb.usedReported = now
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
			h.reportTraffic(ctx, func(sb *hostSandbox, s *sandbox.State) []sandbox.Body { return sb.trafficDue(s, now) })
		}
	}
}

// reportTraffic records the traffic of each sandbox as use returns it.
func (h *host) reportTraffic(ctx context.Context, use func(*hostSandbox, *sandbox.State) []sandbox.Body) {
	links := h.linkTraffic()
	for _, sb := range h.all() {
		sb.addLinkTraffic(links)
		_, err := h.view.ChangeSandbox(ctx, sb.id, func(s sandbox.State) ([]sandbox.Body, error) { return use(sb, &s), nil })
		if err != nil && ctx.Err() == nil {
			h.slog.Warn("record traffic failed", "sandbox", sb.id, "err", err)
		}
	}
}
