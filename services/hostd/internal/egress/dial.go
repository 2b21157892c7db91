package egress

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/mux"
	"github.com/millrace/millrace/events/sandbox"
)

// Resolver resolves names: a *net.Resolver.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Route is the egress of one sandbox. Its methods may be called concurrently.
type Route struct {
	s       *Server
	policy  atomic.Pointer[Policy]
	markers sandbox.Markers

	sent, received atomic.Uint64

	mu       sync.Mutex
	dialing  int // connections in progress
	requests int // requests in progress
	flows    map[*flow]struct{}
}

// flow is a connection to a host.
type flow struct {
	net.Conn
	w    *Route
	name string     // name by which it was dialed; empty: by its address
	addr netip.Addr // invalid: the sandbox's own proxy resolved the name
	use  use
	by   upstream
}

// use is what the proxy does with a connection.
type use bool

const (
	raw    use = false // its bytes are passed on
	parsed use = true  // its requests are parsed and transformed
)

const (
	dialTimeout    = 10 * time.Second // per connection, including the resolution of its name
	addressTimeout = 4 * time.Second  // per address, if there are several
	maxAddresses   = 8                // addresses of a name that are tried

	// maxFlows is the maximum number of connections of a sandbox, including those in progress,
	// and of its requests in progress. The number of its streams does not limit them: one of
	// HTTP/2 uses several, and a dial may outlive its stream.
	maxFlows = 256
)

// Route returns a route with a policy; markers resolve what headers name.
func (s *Server) Route(p *Policy, markers sandbox.Markers) *Route {
	w := &Route{s: s, markers: markers, flows: make(map[*flow]struct{})}
	w.policy.Store(p)
	return w
}

// SetPolicy replaces the policy: connections that it forbids are closed.
func (w *Route) SetPolicy(p *Policy) {
	w.policy.Store(p)
	w.mu.Lock()
	defer w.mu.Unlock()
	for f := range w.flows {
		if !p.allowsFlow(f) {
			mux.Cut(f.Conn, nil)
		}
	}
}

// allowsFlow reports whether the policy allows a connection as it is.
func (p *Policy) allowsFlow(f *flow) bool {
	return p.allows(f.name, f.addr) && f.by == p.proxy && (f.use == parsed || len(p.headers(f.name)) == 0)
}

// Used returns the number of bytes sent and received.
func (w *Route) Used() (sent, received uint64) { return w.sent.Load(), w.received.Load() }

// dial connects to HOST:PORT. It returns Denied, NotFound for a name that does not exist,
// Precondition where no server listens, Deadline, Unavailable, or Exhausted at
// maxFlows.
func (w *Route) dial(ctx context.Context, hostport string, use use) (*flow, error) {
	if err := w.beginDial(); err != nil {
		return nil, err
	}
	defer w.endDial()
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	host, service, err := net.SplitHostPort(hostport)
	if err != nil {
		return nil, kind.Newf(kind.Invalid, "dial", "", "%q is not a host and port", hostport)
	}
	port, err := strconv.ParseUint(service, 10, 16)
	if err != nil || port == 0 {
		return nil, kind.Newf(kind.Invalid, "dial", "", "%q is not a port", service)
	}
	by := w.policy.Load().proxy
	if name := hostOf(host); by != (upstream{}) && w.policy.Load().named(name) {
		return w.connect(ctx, &flow{name: name, use: use, by: by}, uint16(port))
	}
	name, addrs, err := w.resolve(ctx, host)
	if err != nil {
		return nil, err
	}
	err = denied(host)
	for _, a := range addrs[:min(len(addrs), maxAddresses)] {
		if !w.allows(name, a) {
			continue
		}
		f, dialErr := w.connect(ctx, &flow{name: name, addr: a, use: use, by: by}, uint16(port))
		if dialErr == nil {
			return f, nil
		}
		err = dialErr
	}
	return nil, err
}

// beginDial reserves a connection for a dial until begun; a resulting flow is counted itself.
func (w *Route) beginDial() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dialing+len(w.flows) >= maxFlows {
		return kind.Newf(kind.Exhausted, "dial", "", "the sandbox has reached the limit of %d connections", maxFlows)
	}
	w.dialing++
	return nil
}

func (w *Route) endDial() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dialing--
}

// beginRequest reserves a request until answered.
func (w *Route) beginRequest() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.requests >= maxFlows {
		return kind.Newf(kind.Exhausted, "ask", "", "the sandbox has reached the limit of %d requests at a time", maxFlows)
	}
	w.requests++
	return nil
}

func (w *Route) endRequest() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.requests--
}

// resolve returns a host's addresses, and its name unless it is an address itself.
func (w *Route) resolve(ctx context.Context, host string) (name string, addrs []netip.Addr, err error) {
	if a, err := netip.ParseAddr(host); err == nil {
		return "", []netip.Addr{a.Unmap()}, nil
	}
	name, ok := sandbox.CleanName(host)
	if !ok {
		return "", nil, kind.Newf(kind.Invalid, "dial", "", "%q is neither an address nor a name", host)
	}
	if !w.policy.Load().resolves(name) {
		return "", nil, denied(name)
	}
	if addrs, err = w.s.lookUp(ctx, name); err != nil {
		return "", nil, kind.Newf(kind.NotFound, "dial", "", "%s has no address", name)
	}
	return name, addrs, nil
}

func (w *Route) allows(name string, a netip.Addr) bool {
	return dialable(&w.s.cfg.Operator, a, w.s.cfg.own) && w.policy.Load().allows(name, a)
}

// connect connects a flow that the policy allows.
func (w *Route) connect(ctx context.Context, f *flow, port uint16) (*flow, error) {
	var err error
	if f.by == (upstream{}) {
		f.Conn, err = w.direct(ctx, f.name, netip.AddrPortFrom(f.addr, port))
	} else {
		name := f.name
		if f.addr.IsValid() {
			name = "" // the policy allows an address
		}
		f.Conn, err = f.by.connect(ctx, w.s, name, f.addr, port)
	}
	if err != nil {
		return nil, err
	}
	f.w = w
	w.mu.Lock()
	w.flows[f] = struct{}{}
	w.mu.Unlock()
	if !w.policy.Load().allowsFlow(f) { // it may have changed meanwhile
		mux.Cut(f, nil)
		return nil, denied(cmp.Or(f.name, f.addr.String()))
	}
	return f, nil
}

// direct dials an address.
func (w *Route) direct(ctx context.Context, name string, to netip.AddrPort) (net.Conn, error) {
	d := net.Dialer{Timeout: addressTimeout, ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
		// Checks the address that the kernel is about to connect to.
		if at, err := netip.ParseAddrPort(address); err != nil || !w.allows(name, at.Addr()) {
			return denied(address)
		}
		return nil
	}}
	conn, err := d.DialContext(ctx, "tcp", to.String())
	if err != nil {
		return nil, dialError(to, err)
	}
	return conn, nil
}

func dialError(to netip.AddrPort, err error) error {
	var ne net.Error
	switch {
	case kind.Is(err, kind.Denied):
		return denied(to.String())
	case errors.Is(err, syscall.ECONNREFUSED):
		return kind.Newf(kind.Precondition, "dial", "", "%s refuses connections", to)
	case errors.As(err, &ne) && ne.Timeout():
		return kind.Newf(kind.Deadline, "dial", "", "%s does not respond", to)
	}
	return kind.Newf(kind.Unavailable, "dial", "", "%s cannot be reached", to)
}

// Read counts received bytes.
func (f *flow) Read(p []byte) (int, error) {
	n, err := f.Conn.Read(p)
	f.w.received.Add(uint64(n))
	return n, err
}

// Write counts sent bytes.
func (f *flow) Write(p []byte) (int, error) {
	n, err := f.Conn.Write(p)
	f.w.sent.Add(uint64(n))
	return n, err
}

// CloseWrite ends the sent data.
func (f *flow) CloseWrite() error {
	if c, ok := f.Conn.(*net.TCPConn); ok {
		return c.CloseWrite()
	}
	return f.Close()
}

// SetLinger implements the method of net.TCPConn.
func (f *flow) SetLinger(sec int) error {
	if c, ok := f.Conn.(*net.TCPConn); ok {
		return c.SetLinger(sec)
	}
	return nil
}

// Close closes the connection.
func (f *flow) Close() error {
	f.w.mu.Lock()
	delete(f.w.flows, f)
	f.w.mu.Unlock()
	return f.Conn.Close()
}
