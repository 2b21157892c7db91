package outbound

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"syscall"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/internal/ownaddr"
)

// Policy decides which addresses may be reached. Its zero value allows public addresses only. It is
// safe for concurrent use.
type Policy struct {
	Operator sandbox.Operator // the non-public addresses that may be reached
	Resolver *net.Resolver    // nil: the machine's
}

// ResolverAt returns a resolver that uses the name server at IP:PORT, besides the machine's
// own hosts file.
func ResolverAt(addr string) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, addr)
	}}
}

// Allows reports whether an address may be reached.
func (p *Policy) Allows(a netip.Addr) bool {
	return p.Operator.Allows(a) && (p.Operator.Names(a) || !ownaddr.Has(a))
}

const (
	dialTimeout   = 5 * time.Second
	lookUpTimeout = 5 * time.Second
	maxURL        = 2048 // bytes
	maxRedirects  = 5
)

// Dialer returns a dialer that connects to allowed addresses only. It checks the address at connect
// time, regardless of earlier lookups of the name, and returns Denied for others.
func (p *Policy) Dialer() *net.Dialer {
	return &net.Dialer{Timeout: dialTimeout, Resolver: p.Resolver, ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
		if at, err := netip.ParseAddrPort(address); err != nil || !p.Allows(at.Addr()) {
			return kind.New(kind.Denied, "dial", "", "the receiver's address is not public")
		}
		return nil
	}}
}

// Transport returns a transport on [Policy.Dialer], without a proxy.
func (p *Policy) Transport() *http.Transport {
	return &http.Transport{
		DialContext:            p.Dialer().DialContext,
		ForceAttemptHTTP2:      true,
		MaxIdleConns:           256,
		IdleConnTimeout:        30 * time.Second,
		TLSHandshakeTimeout:    dialTimeout,
		MaxResponseHeaderBytes: 16 << 10,
	}
}

// Client returns a client for URLs that [Policy.Check] accepts. It follows redirects to such URLs.
func (p *Policy) Client() *http.Client {
	return &http.Client{
		Transport: p.Transport(),
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if len(via) >= maxRedirects {
				return kind.New(kind.Denied, "redirect", "", "the receiver redirects too often")
			}
			return p.Check(r.Context(), "redirect", r.URL.String())
		},
	}
}

// Check returns Invalid unless raw is an https URL whose host is an allowed address, or a name all
// of whose addresses are allowed. field is the name of the value in the error's text.
func (p *Policy) Check(ctx context.Context, field, raw string) error {
	u, err := url.Parse(raw)
	switch {
	case len(raw) > maxURL:
		return invalidf("%s is longer than %d bytes", field, maxURL)
	case err != nil || u.Scheme != "https" || u.Host == "" || u.Opaque != "":
		return invalidf("%s must be an https URL", field)
	case u.User != nil:
		return invalidf("%s must not contain a user", field)
	case !validPort(u.Port()):
		return invalidf("%s must have a port from 1 to 65535", field)
	}
	addrs, err := p.addresses(ctx, field, u.Hostname())
	if err != nil {
		return err
	}
	for _, a := range addrs {
		if !p.Allows(a) {
			return invalidf("%s must not lead to an address that is not public", field)
		}
	}
	return nil
}

// validPort reports whether the port of a URL, if it has one, can be connected to.
func validPort(port string) bool {
	n, err := strconv.ParseUint(port, 10, 16)
	return port == "" || err == nil && n > 0
}

// addresses returns the addresses of a host: itself, or those of its name. A name that cannot be
// looked up has none.
func (p *Policy) addresses(ctx context.Context, field, host string) ([]netip.Addr, error) {
	host, err := parseHost(field, host)
	if err != nil {
		return nil, err
	}
	if a, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{a}, nil
	}
	if isLocalhost(host) {
		return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}, nil
	}
	r := p.Resolver
	if r == nil {
		r = net.DefaultResolver
	}
	ctx, cancel := context.WithTimeout(ctx, lookUpTimeout)
	defer cancel()
	addrs, err := r.LookupNetIP(ctx, "ip", host+".")
	if err != nil {
		return nil, nil
	}
	return addrs, nil
}

func invalidf(format string, args ...any) error {
	return kind.Newf(kind.Invalid, "check URL", "", format, args...)
}
