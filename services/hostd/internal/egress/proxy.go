package egress

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"syscall"
	"time"

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

// connect requests a connection to a host from the proxy, by its name if there is one: then
// the proxy resolves it.
func (u *upstream) connect(ctx context.Context, conn net.Conn, name string, addr netip.Addr, port uint16) error {
	if at, ok := ctx.Deadline(); ok {
		conn.SetDeadline(at)                //nolint:errcheck // otherwise it has no deadline
		defer conn.SetDeadline(time.Time{}) //nolint:errcheck // likewise
	}
	if err := u.greet(conn); err != nil {
		return err
	}
	b := []byte{socksVersion, socksConnect, 0}
	switch {
	case name != "":
		b = append(append(b, socksName, byte(len(name))), name...)
	case addr.Is4():
		b = append(append(b, socksIPv4), addr.AsSlice()...)
	default:
		b = append(append(b, socksIPv6), addr.AsSlice()...)
	}
	if _, err := conn.Write(binary.BigEndian.AppendUint16(b, port)); err != nil {
		return proxyBroke()
	}
	return answered(conn)
}

// Sub-negotiation of name and password (RFC 1929).
const (
	socksPassword        = 2
	socksPasswordVersion = 1
)

func (u *upstream) greet(conn net.Conn) error {
	method := byte(socksNone)
	if u.user != "" {
		method = socksPassword
	}
	var b [2]byte
	if _, err := conn.Write([]byte{socksVersion, 1, method}); err != nil {
		return proxyBroke()
	}
	if _, err := io.ReadFull(conn, b[:]); err != nil || b[0] != socksVersion {
		return proxyBroke()
	}
	if b[1] != method {
		return kind.New(kind.Unavailable, "dial", "", "the egress proxy rejects the credentials")
	}
	if u.user == "" {
		return nil
	}
	word := append(append([]byte{socksPasswordVersion, byte(len(u.user))}, u.user...), byte(len(u.password)))
	if _, err := conn.Write(append(word, u.password...)); err != nil {
		return proxyBroke()
	}
	if _, err := io.ReadFull(conn, b[:]); err != nil || b[1] != 0 {
		return kind.New(kind.Unavailable, "dial", "", "the egress proxy rejects the credentials")
	}
	return nil
}

// answered reads the proxy's reply, including the address in it, which is not
// used.
func answered(conn net.Conn) error {
	var b [3]byte
	if _, err := io.ReadFull(conn, b[:]); err != nil || b[0] != socksVersion {
		return proxyBroke()
	}
	switch code := b[1]; code {
	case socksOK:
	case socksClosed:
		return kind.New(kind.Precondition, "dial", "", "the egress proxy reports that the host refuses connections")
	case socksDenied:
		return kind.New(kind.Denied, "dial", "", "the egress proxy does not allow it")
	default:
		return kind.Newf(kind.Unavailable, "dial", "", "the egress proxy cannot reach the host (%d)", code)
	}
	var family [1]byte
	if _, err := io.ReadFull(conn, family[:]); err != nil {
		return proxyBroke()
	}
	if _, ok := socksHost(conn, family[0]); !ok {
		return proxyBroke()
	}
	var port [2]byte
	if _, err := io.ReadFull(conn, port[:]); err != nil {
		return proxyBroke()
	}
	return nil
}

func proxyBroke() error {
	return kind.New(kind.Unavailable, "dial", "", "the egress proxy is not a SOCKS5 server")
}
