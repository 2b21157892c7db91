// Package ownaddr recognizes the addresses of this machine. What dials on behalf of a
// tenant must not reach them: services listen there that trust their neighbors.
package ownaddr

import (
	"net"
	"net/netip"
)

// Has reports whether an address is one of this machine's. If the machine's addresses
// cannot be read, every address is.
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
