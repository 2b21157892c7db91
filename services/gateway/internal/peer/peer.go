// Package peer determines the address of the client behind proxies. It does no I/O.
package peer

import (
	"net/netip"
	"slices"
	"strings"
)

// Client returns the address of the client of a connection from an address. If that is a trusted
// proxy, the client is the last address in the X-Forwarded-For headers that is not one; a client
// can write anything before that. An entry that is not an address ends the search at the proxy
// that sent it.
func Client(from netip.Addr, forwarded []string, proxies []netip.Prefix) netip.Addr {
	from = from.Unmap()
	hops := strings.Split(strings.Join(forwarded, ","), ",")
	for _, hop := range slices.Backward(hops) {
		if !trusted(from, proxies) {
			break
		}
		next, ok := parse(strings.TrimSpace(hop))
		if !ok {
			break
		}
		from = next
	}
	return from
}

func trusted(a netip.Addr, proxies []netip.Prefix) bool {
	return slices.ContainsFunc(proxies, func(p netip.Prefix) bool { return p.Contains(a) })
}

// parse reads an address with or without a port.
func parse(s string) (netip.Addr, bool) {
	if p, err := netip.ParseAddrPort(s); err == nil {
		return p.Addr().Unmap().WithZone(""), true
	}
	a, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(s, "["), "]"))
	return a.Unmap().WithZone(""), err == nil
}
