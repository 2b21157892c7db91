package network

import (
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/events/identity"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/mux"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/egress"
	"github.com/millrace/millrace/services/hostd/internal/link"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// ProxyPort is the port of the host's proxy, on the sandbox's own loopback.
const ProxyPort = 3128

// SandboxConfig describes a sandbox to its network.
type SandboxConfig struct {
	ID       sandbox.ID
	Tenant   string
	Template string
	Identity *sandbox.Identity
	Used     sandbox.NetworkUsed // usage in the record

	Isolation func() sandbox.Isolation // returns its isolation; empty until it is known
	Instance  func() driver.Instance   // returns its current instance; nil without one
}

// Sandbox is the network of a sandbox.
type Sandbox struct {
	n   *Network
	cfg SandboxConfig

	mu          sync.Mutex
	conn        *link.Conn          // as the session has it, or is about to have it
	route       *egress.Route       // nil: no network access
	settings    sandbox.Network     // the settings in force
	reachable   bool                // the settings allow any destination
	transformed bool                // the settings transform requests
	used        sandbox.NetworkUsed // network usage before this run, and through interfaces
	reported    time.Time           // time of Run's last report; of Run's goroutine
}

// Sandbox returns the network of a sandbox, which has no access before Apply.
func (n *Network) Sandbox(cfg SandboxConfig) *Sandbox {
	return &Sandbox{n: n, cfg: cfg, used: cfg.Used}
}

// Attach sends the settings on a new connection, and later ones when they change.
func (nw *Sandbox) Attach(conn *link.Conn) {
	nw.mu.Lock()
	defer nw.mu.Unlock()
	nw.conn = conn
	nw.send(conn)
}

// Detach ends the use of a connection.
func (nw *Sandbox) Detach(conn *link.Conn) {
	nw.mu.Lock()
	defer nw.mu.Unlock()
	if nw.conn == conn {
		nw.conn = nil
	}
}

// Apply applies the network settings in the sandbox's record.
func (nw *Sandbox) Apply(s *sandbox.State) {
	nw.mu.Lock()
	defer nw.mu.Unlock()
	if nw.n.egress == nil || nw.route != nil && reflect.DeepEqual(nw.settings, s.Network) {
		return
	}
	nw.settings = s.Network
	policy := egress.NewPolicy(&nw.settings, nw.cfg.Tenant, nw.n.sealed.Open)
	nw.reachable, nw.transformed = policy.Any(), policy.Transforms()
	switch {
	case nw.conn != nil:
		nw.send(nw.conn) // before the policy is in force: the CA that it uses must be trusted then
	case !nw.wide():
		nw.unplug()
	}
	if nw.route == nil {
		nw.route = nw.n.egress.Route(policy, sandbox.Markers{Secret: nw.secret, Token: nw.token})
	} else {
		nw.route.SetPolicy(policy)
	}
}

// secret returns the current value of a secret of the sandbox's tenant.
func (nw *Sandbox) secret(name string) (string, error) {
	for _, s := range nw.n.view.TenantSecrets(nw.cfg.Tenant) {
		if s.Name == strings.ToLower(name) {
			return nw.n.sealed.Open(s.Place(), s.Sealed)
		}
	}
	return "", kind.Newf(kind.Precondition, "transform", string(nw.cfg.ID), "secret %q does not exist", name)
}

// token returns a new token of that name, which identifies the sandbox.
func (nw *Sandbox) token(name string) (string, error) {
	t, ok := nw.cfg.Identity.Token(name)
	if !ok {
		return "", kind.Newf(kind.Precondition, "transform", string(nw.cfg.ID), "the sandbox has no token %q", name)
	}
	about := identity.Subject{Issuer: nw.cfg.Identity.Issuer, Team: nw.cfg.Tenant, Template: nw.cfg.Template, Sandbox: string(nw.cfg.ID)}
	return nw.n.signing.Token(nw.n.view.SigningKeys(), &about, t.Audience, time.Now())
}

// send sends the proxy's port and the name server to the shim; mu is held. Without
// isolation there is no proxy: the sandbox's loopback is the host's.
func (nw *Sandbox) send(conn *link.Conn) {
	var n wire.Network
	if nw.reachable && nw.isolated() {
		n.Proxy = ProxyPort
		if nw.transformed {
			n.CA = nw.n.authority.PEM()
		}
	}
	n.DNS = nw.plug()
	conn.Send(func(dst []byte) []byte { return wire.AppendNetwork(dst, &n) })
}

// isolated reports whether the sandbox has a loopback of its own.
func (nw *Sandbox) isolated() bool {
	level := nw.cfg.Isolation()
	return level != "" && level != sandbox.IsolationNone
}

// Serve serves a stream from the shim: a connection to the proxy.
func (nw *Sandbox) Serve(s *mux.Stream) {
	if s.Target() != wire.TargetProxy {
		s.Abort(kind.Newf(kind.Precondition, "egress", string(nw.cfg.ID), "unknown target %q", s.Target()))
		return
	}
	nw.ServeProxy(s)
}

// ServeProxy serves a connection to the proxy, also of a gateway that sends a client's requests
// from the sandbox: by the sandbox's policy, and counted as its traffic.
func (nw *Sandbox) ServeProxy(s *mux.Stream) {
	nw.mu.Lock()
	route := nw.route
	nw.mu.Unlock()
	if route == nil {
		s.Abort(kind.New(kind.Denied, "egress", string(nw.cfg.ID), "the sandbox has no network"))
		return
	}
	nw.n.cfg.Go(func() { route.Serve(s) })
}

// newTraffic returns the total traffic, and whether it differs from the record.
func (nw *Sandbox) newTraffic(s *sandbox.State) (total sandbox.NetworkUsed, isNew bool) {
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

// Traffic returns the traffic as an event, if it is new.
func (nw *Sandbox) Traffic(s *sandbox.State) []sandbox.Body {
	if total, isNew := nw.newTraffic(s); isNew {
		return []sandbox.Body{total}
	}
	return nil
}

// trafficDue is Traffic, if the change is worth an event.
func (nw *Sandbox) trafficDue(s *sandbox.State, now time.Time) []sandbox.Body {
	total, isNew := nw.newTraffic(s)
	known := s.Used.Sent + s.Used.Received
	much := total.Sent+total.Received >= known+known/meterPart
	if !isNew || !much && now.Sub(nw.reported) < meterMost*nw.n.cfg.MeterEvery {
		return nil
	}
	nw.reported = now
	return []sandbox.Body{total}
}
