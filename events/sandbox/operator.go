package sandbox

import (
	"net/netip"
	"slices"
)

// Operator lists the non-public addresses that the operator of hosts and gateways allows.
type Operator struct{ Allow []netip.Prefix }

// special are the ranges that are not public. In IPv6 that is everything but 2000::/3, and
// parts of that.
var special = prefixes(
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
	"192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24",
	"198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
	"::/3", "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20", "4000::/2", "8000::/1",
	"168.63.129.16/32", // Azure's metadata address, in a public range
)

// singleOnly are ranges in which an operator can allow single addresses only.
var singleOnly = prefixes(
	"169.254.0.0/16", "fe80::/10", "fd00:ec2::/32", "100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32",
	"fd20:ce::254/128", "fd00:42::42/128", "fd00:c1::a9fe:a9fe/128", "fd00:a9fe:a9fe::1/128", // Google's, Scaleway's, Oracle's, Linode's
)

// Ranges returns the operator's rules for packet filters. If an address is in several
// ranges, the first list counts; an address in none is allowed. The host's own addresses
// come on top.
func (o *Operator) Ranges() (allowedOnes, refusedOnes, allowed, refused []netip.Prefix) {
	for _, p := range o.Allow {
		if p.IsSingleIP() {
			allowedOnes = append(allowedOnes, p)
		} else {
			allowed = append(allowed, p)
		}
	}
	return allowedOnes, slices.Clone(singleOnly), allowed, slices.Clone(special)
}

func prefixes(list ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(list))
	for i, s := range list {
		out[i] = netip.MustParsePrefix(s)
	}
	return out
}

func containsAddr(list []netip.Prefix, a netip.Addr) bool {
	for _, p := range list {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// Names reports whether the operator allows an address by a prefix.
func (o *Operator) Names(a netip.Addr) bool {
	a = a.Unmap()
	single := containsAddr(singleOnly, a)
	return slices.ContainsFunc(o.Allow, func(p netip.Prefix) bool {
		return p.Contains(a) && (!single || p.IsSingleIP())
	})
}

// Allows reports whether an address is public or allowed by the operator.
func (o *Operator) Allows(a netip.Addr) bool {
	a = a.Unmap()
	if !a.IsValid() || a.Zone() != "" {
		return false
	}
	return o.Names(a) || !containsAddr(singleOnly, a) && !containsAddr(special, a)
}
