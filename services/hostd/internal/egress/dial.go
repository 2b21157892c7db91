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

// Way is one sandbox's way out. Its methods may be called concurrently.
type Way struct {
	s       *Server
	policy  atomic.Pointer[Policy]
	markers sandbox.Markers

	sent, received atomic.Uint64

	mu      sync.Mutex
	dialing int // connections that are being made
	asking  int // requests that are passed on
	flows   map[*flow]struct{}
}

// flow is a connection to the world.
type flow struct {
	net.Conn
	w    *Way
	name string     // by which it was reached; empty: by its address
	addr netip.Addr // not valid: the sandbox's own proxy resolved the name
	use  use
	by   upstream
}

// use is what becomes of a connection.
type use bool

const (
	raw  use = false // its bytes are passed on
	read use = true  // what is sent on it is known, and transformed
)

const (
	dialTimeout    = 10 * time.Second // of a connection, with its name's resolution
	addressTimeout = 4 * time.Second  // of one of several addresses
	maxAddresses   = 8                // of a name that are tried

	// maxFlows is how many connections a sandbox has, with those that are being made, and how
	// many requests that are passed on. Its streams alone do not bound them: one of HTTP/2
	// wants several, and a dial may outlive the stream that it was for.
	maxFlows = 256
)

// Way gives a way out that the policy bounds; markers are what headers name.
func (s *Server) Way(p *Policy, markers sandbox.Markers) *Way {
	w := &Way{s: s, markers: markers, flows: make(map[*flow]struct{})}
	w.policy.Store(p)
	return w
}

// SetPolicy bounds the way anew: connections that it forbids are cut.
func (w *Way) SetPolicy(p *Policy) {
	w.policy.Store(p)
	w.mu.Lock()
	defer w.mu.Unlock()
	for f := range w.flows {
		if !p.suits(f) {
			mux.Cut(f.Conn, nil)
		}
	}
}

// suits reports whether the policy lets a connection be as it is.
func (p *Policy) suits(f *flow) bool {
	return p.allows(f.name, f.addr) && f.by == p.proxy && (f.use == read || len(p.headers(f.name)) == 0)
}

// Used is how many bytes went out and came in.
func (w *Way) Used() (sent, received uint64) { return w.sent.Load(), w.received.Load() }

// dial connects to HOST:PORT. Errors: Denied, NotFound where there is no such
// name, Precondition where nobody listens, Deadline, Unavailable, Exhausted where
// maxFlows are reached.
func (w *Way) dial(ctx context.Context, hostport string, use use) (*flow, error) {
	if err := w.begin(); err != nil {
		return nil, err
	}
	defer w.begun()
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	host, service, err := net.SplitHostPort(hostport)
	if err != nil {
		return nil, kind.Newf(kind.Invalid, "dial", "", "%q is no host and port", hostport)
	}
	port, err := strconv.ParseUint(service, 10, 16)
	if err != nil || port == 0 {
		return nil, kind.Newf(kind.Invalid, "dial", "", "%q is no port", service)
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

// begin takes a place for a dial until begun; what it made has one of its own then.
func (w *Way) begin() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dialing+len(w.flows) >= maxFlows {
		return kind.Newf(kind.Exhausted, "dial", "", "the sandbox has %d connections, which is as many as may be", maxFlows)
	}
	w.dialing++
	return nil
}

func (w *Way) begun() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dialing--
}

// ask takes a place for a request until answered.
func (w *Way) ask() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.asking >= maxFlows {
		return kind.Newf(kind.Exhausted, "ask", "", "the sandbox has %d requests under way, which is as many as may be", maxFlows)
	}
	w.asking++
	return nil
}

func (w *Way) answered() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asking--
}

// resolve gives a host's addresses, and its name if it is no address itself.
func (w *Way) resolve(ctx context.Context, host string) (name string, addrs []netip.Addr, err error) {
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

func (w *Way) allows(name string, a netip.Addr) bool {
	return dialable(&w.s.cfg.Operator, a, w.s.cfg.own) && w.policy.Load().allows(name, a)
}

// connect makes a connection of a flow that was judged.
func (w *Way) connect(ctx context.Context, f *flow, port uint16) (*flow, error) {
	var err error
	if f.by == (upstream{}) {
		f.Conn, err = w.direct(ctx, f.name, netip.AddrPortFrom(f.addr, port))
	} else if f.Conn, err = f.by.reach(ctx, w.s); err == nil {
		name := f.name
		if f.addr.IsValid() {
			name = "" // what was judged is an address
		}
		if err = f.by.connect(ctx, f.Conn, name, f.addr, port); err != nil {
			f.Conn.Close() //nolint:errcheck // nobody uses it
		}
	}
	if err != nil {
		return nil, err
	}
	f.w = w
	w.mu.Lock()
	w.flows[f] = struct{}{}
	w.mu.Unlock()
	if !w.policy.Load().suits(f) { // it may have changed meanwhile
		mux.Cut(f, nil)
		return nil, denied(cmp.Or(f.name, f.addr.String()))
	}
	return f, nil
}

// direct dials an address.
func (w *Way) direct(ctx context.Context, name string, to netip.AddrPort) (net.Conn, error) {
	d := net.Dialer{Timeout: addressTimeout, ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
		// What the kernel is about to be asked for, once more.
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
		return kind.Newf(kind.Deadline, "dial", "", "%s does not answer", to)
	}
	return kind.Newf(kind.Unavailable, "dial", "", "%s cannot be reached", to)
}

// Read counts what comes.
func (f *flow) Read(p []byte) (int, error) {
	n, err := f.Conn.Read(p)
	f.w.received.Add(uint64(n))
	return n, err
}

// Write counts what goes.
func (f *flow) Write(p []byte) (int, error) {
	n, err := f.Conn.Write(p)
	f.w.sent.Add(uint64(n))
	return n, err
}

// CloseWrite ends what is sent.
func (f *flow) CloseWrite() error {
	if c, ok := f.Conn.(*net.TCPConn); ok {
		return c.CloseWrite()
	}
	return f.Close()
}

// SetLinger is net.TCPConn's.
func (f *flow) SetLinger(sec int) error {
	if c, ok := f.Conn.(*net.TCPConn); ok {
		return c.SetLinger(sec)
	}
	return nil
}

// Close ends the connection.
func (f *flow) Close() error {
	f.w.mu.Lock()
	delete(f.w.flows, f)
	f.w.mu.Unlock()
	return f.Conn.Close()
}
