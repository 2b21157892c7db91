package hostd

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/events/identity"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/mux"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/egress"
	"github.com/millrace/millrace/services/hostd/internal/link"
	"github.com/millrace/millrace/services/hostd/internal/veth"
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

// sandboxNetwork is the network of a sandbox.
type sandboxNetwork struct {
	sb *hostSandbox

	mu          sync.Mutex
	conn        *link.Conn          // as the session has it, or is about to have it
	route       *egress.Route       // nil: no network access
	settings    sandbox.Network     // the settings in force
	reachable   bool                // the settings allow any destination
	transformed bool                // the settings transform requests
	used        sandbox.NetworkUsed // network usage before this run, and through interfaces
	reported    time.Time           // time of meter's last report; of meter's goroutine
}

// hostNetwork is the network of all sandboxes: the egress proxy and the interfaces.
type hostNetwork struct {
	h *host

	egress    *egress.Server // nil: no sandbox may use the network; then the next two are nil, too
	authority *egress.Authority
	sealer    *sandbox.Sealer
	ring      *identity.Ring
	veth      *veth.Net // nil: no sandbox has a network interface of its own
}

// openEgress starts the egress proxy, if sandboxes may use the network.
func (n *hostNetwork) openEgress() (closeIt func(), err error) {
	if !n.h.cfg.Egress {
		return func() {}, nil
	}
	if n.authority, err = egress.OpenAuthority(filepath.Join(n.h.cfg.DataDir, authorityFile)); err != nil {
		return nil, fmt.Errorf("open certificate authority of the proxy: %w", err)
	}
	cfg := egress.Config{Operator: sandbox.Operator{Allow: n.h.cfg.EgressAllow}, Authority: n.authority}
	if n.h.cfg.EgressDNS != "" {
		cfg.Resolver = egress.ResolverAt(n.h.cfg.EgressDNS)
	}
	n.egress = egress.NewServer(cfg)
	return n.egress.Close, nil
}

// openSealer opens the sealer of secrets in records; it waits for the log.
func (n *hostNetwork) openSealer(ctx context.Context) error {
	if n.egress == nil {
		return nil
	}
	secret, err := n.h.log.Secret(ctx, sandbox.SealerSecret)
	if err != nil {
		return fmt.Errorf("read secret: %w", err)
	}
	if n.sealer, err = sandbox.NewSealer(secret); err == nil {
		n.ring = identity.NewRing(n.sealer)
	}
	return err
}

// attach sends the settings on a new connection, and later ones when they change.
func (nw *sandboxNetwork) attach(conn *link.Conn) {
	nw.mu.Lock()
	defer nw.mu.Unlock()
	nw.conn = conn
	nw.send(conn)
}

// detach ends the use of a connection.
func (nw *sandboxNetwork) detach(conn *link.Conn) {
	nw.mu.Lock()
	defer nw.mu.Unlock()
	if nw.conn == conn {
		nw.conn = nil
	}
}

// apply applies the network settings in the sandbox's record.
func (nw *sandboxNetwork) apply(s *sandbox.State) {
	nw.mu.Lock()
	defer nw.mu.Unlock()
	if nw.sb.h.network.egress == nil || nw.route != nil && reflect.DeepEqual(nw.settings, s.Network) {
		return
	}
	nw.settings = s.Network
	policy := egress.NewPolicy(&nw.settings, nw.sb.h.network.sealer.Open)
	nw.reachable, nw.transformed = policy.Any(), policy.Transforms()
	switch {
	case nw.conn != nil:
		nw.send(nw.conn) // before the policy is in force: the CA that it uses must be trusted then
	case !nw.wide():
		nw.unplug()
	}
	if nw.route == nil {
		nw.route = nw.sb.h.network.egress.Route(policy, sandbox.Markers{Secret: nw.secret, Token: nw.token})
	} else {
		nw.route.SetPolicy(policy)
	}
}

// secret returns the current value of a secret of the sandbox's tenant.
func (nw *sandboxNetwork) secret(name string) (string, error) {
	for _, s := range nw.sb.h.view.TenantSecrets(nw.sb.tenant) {
		if s.Name == strings.ToLower(name) {
			return nw.sb.h.network.sealer.Open(s.Sealed)
		}
	}
	return "", kind.Newf(kind.Precondition, "transform", string(nw.sb.id), "secret %q does not exist", name)
}

// token returns a new token of that name, which identifies the sandbox.
func (nw *sandboxNetwork) token(name string) (string, error) {
	t, ok := nw.sb.req.Identity.Token(name)
	if !ok {
		return "", kind.Newf(kind.Precondition, "transform", string(nw.sb.id), "the sandbox has no token %q", name)
	}
	about := identity.Subject{
		Issuer: nw.sb.req.Identity.Issuer, Team: nw.sb.tenant, Template: cmp.Or(nw.sb.req.Built, nw.sb.req.Template), Sandbox: string(nw.sb.id),
	}
	return nw.sb.h.network.ring.Token(nw.sb.h.view.SigningKeys(), &about, t.Audience, time.Now())
}

// send sends the proxy's port and the name server to the shim; mu is held. Without
// isolation there is no proxy: the sandbox's loopback is the host's.
func (nw *sandboxNetwork) send(conn *link.Conn) {
	var n wire.Network
	if nw.reachable && nw.isolated() {
		n.Proxy = proxyPort
		if nw.transformed {
			n.CA = nw.sb.h.network.authority.PEM()
		}
	}
	n.DNS = nw.plug()
	conn.Send(func(dst []byte) []byte { return wire.AppendNetwork(dst, &n) })
}

// isolated reports whether the sandbox has a loopback of its own.
func (nw *sandboxNetwork) isolated() bool {
	return nw.sb.created.Isolation != "" && nw.sb.created.Isolation != sandbox.IsolationNone
}

// serve serves a stream from the shim: a connection to the proxy.
func (nw *sandboxNetwork) serve(s *mux.Stream) {
	nw.mu.Lock()
	route := nw.route
	nw.mu.Unlock()
	if route == nil || s.Target() != wire.TargetProxy {
		s.Abort(kind.New(kind.Denied, "egress", string(nw.sb.id), "the sandbox has no network"))
		return
	}
	nw.sb.h.wg.Go(func() { route.Serve(s) })
}

// newTraffic returns the total traffic, and whether it differs from the record.
func (nw *sandboxNetwork) newTraffic(s *sandbox.State) (total sandbox.NetworkUsed, isNew bool) {
	nw.mu.Lock()
	defer nw.mu.Unlock()
	if nw.route == nil || s.Over() || s.Begins() {
		return total, false
	}
	total = nw.used
	sent, received := nw.route.Used()
	total.Sent += sent
	total.Received += received
	return total, total != s.Used
}

// traffic returns the traffic as an event, if it is new.
func (nw *sandboxNetwork) traffic(s *sandbox.State) []sandbox.Body {
	if total, isNew := nw.newTraffic(s); isNew {
		return []sandbox.Body{total}
	}
	return nil
}

// trafficDue is use, if the change is worth an event.
func (nw *sandboxNetwork) trafficDue(s *sandbox.State, now time.Time) []sandbox.Body {
	total, isNew := nw.newTraffic(s)
	known := s.Used.Sent + s.Used.Received
	much := total.Sent+total.Received >= known+known/meterPart
	if !isNew || !much && now.Sub(nw.reported) < meterMost*nw.sb.h.cfg.meterEvery {
		return nil
	}
	nw.reported = now
	return []sandbox.Body{total}
}

// run records the sandboxes' traffic until ctx ends.
func (n *hostNetwork) run(ctx context.Context) error {
	if n.egress == nil {
		return nil
	}
	tick := time.NewTicker(n.h.cfg.meterEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			now := time.Now()
			n.report(ctx, func(sb *hostSandbox, s *sandbox.State) []sandbox.Body { return sb.network.trafficDue(s, now) })
		}
	}
}

// report records the traffic of each sandbox as use returns it.
func (n *hostNetwork) report(ctx context.Context, use func(*hostSandbox, *sandbox.State) []sandbox.Body) {
	links := n.linkTraffic()
	for _, sb := range n.h.sandboxes.all() {
		sb.network.addLinkTraffic(links)
		_, err := n.h.view.ChangeSandbox(ctx, sb.id, func(s sandbox.State) ([]sandbox.Body, error) { return use(sb, &s), nil })
		if err != nil && ctx.Err() == nil {
			n.h.slog.Warn("record traffic failed", "sandbox", sb.id, "err", err)
		}
	}
}
