package builder

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
)

// registries are the registries that images are pulled from.
type registries struct {
	listed []string      // those at non-public addresses, as HOST or HOST:PORT
	ecr    string        // URL of the API that issues passwords for AWS's registries; empty: that of their region
	stall  time.Duration // default stallTimeout
}

// transport connects to registries at public addresses, and to those that the operator
// lists: a build's image is untrusted input, and its registry may redirect anywhere. A read
// that receives nothing for stallTimeout fails.
func (rg *registries) transport() http.RoundTripper {
	anywhere := &net.Dialer{Timeout: dialTimeout}
	public := &net.Dialer{Timeout: dialTimeout, Control: func(_, address string, _ syscall.RawConn) error {
		return onlyPublic(address)
	}}
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		TLSHandshakeTimeout:   dialTimeout,
		ResponseHeaderTimeout: time.Minute,
		MaxIdleConnsPerHost:   4,
		IdleConnTimeout:       time.Minute,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			host, _, err := net.SplitHostPort(address)
			from := public
			if err == nil && (slices.Contains(rg.listed, address) || slices.Contains(rg.listed, host)) {
				from = anywhere
			}
			conn, err := from.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &stallConn{conn, cmp.Or(rg.stall, stallTimeout)}, nil
		},
	}
}

const (
	dialTimeout  = 15 * time.Second
	stallTimeout = time.Minute // without receiving a byte
)

// stallConn is a connection whose reads fail when nothing arrives within stall.
type stallConn struct {
	net.Conn
	stall time.Duration
}

// Read reads available data, or data that arrives in time.
func (c *stallConn) Read(b []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(c.stall)); err != nil {
		return 0, err
	}
	return c.Conn.Read(b)
}

// onlyPublic rejects an address that is about to be dialed unless it is public.
func onlyPublic(address string) error {
	at, err := netip.ParseAddrPort(address)
	if err == nil && new(sandbox.Operator).Allows(at.Addr()) {
		return nil
	}
	return kind.Newf(kind.Denied, "pull", address, "the registry's address %s is not public: see --registries", address)
}
