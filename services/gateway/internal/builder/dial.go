package builder

import (
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

// transport reaches registries at public addresses, and those that the operator
// names: a build's image is named by a stranger, and its registry may send us
// anywhere.
func (cfg *Config) transport() http.RoundTripper {
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
			if err == nil && (slices.Contains(cfg.Registries, address) || slices.Contains(cfg.Registries, host)) {
				return anywhere.DialContext(ctx, network, address)
			}
			return public.DialContext(ctx, network, address)
		},
	}
}

const dialTimeout = 15 * time.Second

// onlyPublic refuses an address that is about to be dialed unless it is public.
func onlyPublic(address string) error {
	at, err := netip.ParseAddrPort(address)
	if err == nil && new(sandbox.Operator).Allows(at.Addr()) {
		return nil
	}
	return kind.Newf(kind.Denied, "pull", address, "the registry is at %s, which is not public: see --registries", address)
}
