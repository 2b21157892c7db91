// Package ownaddr recognizes the addresses of this machine. Connections on behalf of a
// tenant must not reach them, because local services may trust local clients.
package ownaddr

import (
	"net"
	"net/netip"
)

// Has reports whether a is an address of this machine. It returns true if the machine's
// addresses cannot be read.
func Has(a netip.Addr) bool {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return true
	}
	for _, i := range all {
		if n, ok := i.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(n.IP); ok && ip.Unmap() == a.Unmap() {
				return true
			}
		}
	}
	return false
}
