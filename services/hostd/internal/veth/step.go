package veth

import "net/netip"

// Step is one step in deciding about a sandbox's destination address: the first step that
// contains the address decides; an address in no step is permitted.
type Step struct {
	Allow bool
	Nets  []netip.Prefix // IPv6 prefixes are ignored
}
