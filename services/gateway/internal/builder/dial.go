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
	if err == nil && isPublic(at.Addr().Unmap()) {
		return nil
	}
	return kind.Newf(kind.Denied, "pull", address, "the registry is at %s, which is not public: see --registries", address)
}

// isPublic reports whether an address is one of the internet's.
func isPublic(a netip.Addr) bool {
	if !a.IsGlobalUnicast() || a.IsPrivate() || a.IsLoopback() || a.IsLinkLocalUnicast() {
		return false
	}
	for _, p := range [...]string{"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "198.18.0.0/15", "240.0.0.0/4", "64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "fec0::/10"} {
		if netip.MustParsePrefix(p).Contains(a) {
			return false
		}
	}
	return true
}
