package veth

import "net/netip"

// Step is one look at where a packet of a sandbox goes; the first that knows the
// address decides, and one that nobody knows passes.
type Step struct {
	Allow bool
	Nets  []netip.Prefix // of IPv6 none counts
}
