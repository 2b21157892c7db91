package egress

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/net/proxy"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
)

// upstream is the SOCKS5 proxy of a sandbox; the zero value means no proxy.
type upstream struct{ address, user, password string }

// reach connects to the proxy. The operator, not the sandbox's policy, decides about its
// address: the policy applies to the destinations behind it.
func (u *upstream) reach(ctx context.Context, s *Server) (net.Conn, error) {
	host, port, err := net.SplitHostPort(u.address)
	if err != nil {
		return nil, kind.New(kind.Unavailable, "dial", "", "the egress proxy has no address")
	}
	addrs, err := s.lookUp(ctx, host)
	if err != nil {
		return nil, kind.New(kind.Unavailable, "dial", "", "the egress proxy's name has no address")
	}
	failed := kind.New(kind.Unavailable, "dial", "", "the egress proxy may not be used: its address is not public")
	d := net.Dialer{Timeout: addressTimeout, ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
		if at, err := netip.ParseAddrPort(address); err != nil || !dialable(&s.cfg.Operator, at.Addr(), s.cfg.own) {
			return denied("")
		}
		return nil
	}}
	for _, a := range addrs[:min(len(addrs), maxAddresses)] {
		if !dialable(&s.cfg.Operator, a, s.cfg.own) {
			continue
		}
		conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(a.String(), port))
		if err == nil {
			return conn, nil
		}
		failed = kind.New(kind.Unavailable, "dial", "", "the egress proxy cannot be reached")
	}
	return nil, failed
}

// lookUp returns the addresses of a host, or itself if it is one.
func (s *Server) lookUp(ctx context.Context, host string) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{a.Unmap()}, nil
	}
	name, ok := sandbox.CleanName(host)
	if !ok {
		return nil, kind.New(kind.Invalid, "dial", "", "no name")
	}
	addrs, err := s.cfg.Resolver.LookupNetIP(ctx, "ip", name)
	for i := range addrs {
		addrs[i] = addrs[i].Unmap()
	}
	return addrs, err
}

// connect connects to a host through the proxy, by the host's name if there is one: then the
// proxy resolves it.
func (u *upstream) connect(ctx context.Context, s *Server, name string, addr netip.Addr, port uint16) (net.Conn, error) {
	var conn net.Conn // to the proxy; it has no buffer, so that the tunnel begins at its next byte
	toProxy := dialFunc(func(ctx context.Context, _, _ string) (net.Conn, error) {
		var err error
		conn, err = u.reach(ctx, s)
		return conn, err
	})
	var auth *proxy.Auth
	if u.user != "" {
		auth = &proxy.Auth{User: u.user, Password: u.password}
	}
	d, err := proxy.SOCKS5("tcp", u.address, auth, toProxy)
	if err != nil {
		return nil, proxyError(err)
	}
	to := net.JoinHostPort(cmp.Or(name, addr.String()), strconv.Itoa(int(port)))
	if _, err := d.(proxy.ContextDialer).DialContext(ctx, "tcp", to); err != nil { //nolint:errcheck,forcetypeassert // each dialer of the package is one
		return nil, proxyError(err)
	}
	return conn, nil
}

// dialFunc is a proxy.ContextDialer.
type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// Dial implements proxy.Dialer.
func (f dialFunc) Dial(network, address string) (net.Conn, error) {
	return f(context.Background(), network, address)
}

// DialContext implements proxy.ContextDialer.
func (f dialFunc) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return f(ctx, network, address)
}

// proxyError returns the error of a dial by package proxy with its kind. That package reports
// replies as text only; TestRepliesOfTheProxyHaveAKind holds it to that text.
func proxyError(err error) error {
	if e, ok := errors.AsType[*kind.Error](err); ok {
		return e // of reach
	}
	if e, ok := errors.AsType[*net.OpError](err); ok {
		err = e.Err
	}
	reply, replied := strings.CutPrefix(err.Error(), "unknown error ")
	switch {
	case reply == "connection refused":
		return kind.New(kind.Precondition, "dial", "", "the egress proxy reports that the host refuses connections")
	case reply == "connection not allowed by ruleset":
		return kind.New(kind.Denied, "dial", "", "the egress proxy does not allow it")
	case replied:
		return kind.New(kind.Unavailable, "dial", "", "the egress proxy cannot reach the host: "+reply)
	case strings.Contains(reply, "authentication"):
		return kind.New(kind.Unavailable, "dial", "", "the egress proxy rejects the credentials")
	}
	return kind.New(kind.Unavailable, "dial", "", "the egress proxy is not a SOCKS5 server")
}
