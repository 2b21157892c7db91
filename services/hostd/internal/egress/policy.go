package egress

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
)

// Policy is what one sandbox may reach. It is not changed once it is made.
type Policy struct {
	open        bool // what no rule names is allowed
	allow, deny []sandbox.Rule
	set         map[string][]header // by the domains of transforms
	proxy       upstream
}

// header is set in place of what a request has.
type header struct{ name, value string }

// Opener reads what a sandbox.Sealer hid.
type Opener func(sandbox.Sealed) (string, error)

// NewPolicy makes the policy that a sandbox's record asks for. What cannot be read
// was checked by somebody newer, or sealed by a stranger: then nothing may be
// reached.
func NewPolicy(n *sandbox.Network, open Opener) *Policy {
	p := &Policy{open: n.Internet}
	var err1, err2 error
	p.allow, err1 = rules(n.Allow)
	p.deny, err2 = rules(n.Deny)
	if errors.Join(err1, err2, p.unseal(n, open)) != nil {
		return &Policy{}
	}
	for i := range p.deny {
		if p.deny[i].Everything() {
			p.open = false
		}
	}
	return p
}

func rules(list []string) ([]sandbox.Rule, error) {
	out := make([]sandbox.Rule, 0, len(list))
	for _, s := range list {
		r, err := sandbox.ParseRule(s)
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

// unseal reads what is hidden in the record.
func (p *Policy) unseal(n *sandbox.Network, open Opener) error {
	for _, t := range n.Transforms {
		if p.set == nil {
			p.set = make(map[string][]header)
		}
		all := p.set[t.Domain]
		for _, h := range t.Headers {
			value, err := open(h.Value)
			if err != nil {
				return err
			}
			all = append(all, header{http.CanonicalHeaderKey(h.Name), value})
		}
		p.set[t.Domain] = all
	}
	if n.Proxy == nil {
		return nil
	}
	password, err := open(n.Proxy.Password)
	p.proxy = upstream{n.Proxy.Address, n.Proxy.User, password}
	return err
}

// Transforms reports whether it transforms anything.
func (p *Policy) Transforms() bool { return len(p.set) > 0 }

// headers are what requests to a name get: what is said for the name itself, else
// for the longest name above it.
func (p *Policy) headers(name string) []header {
	if all, ok := p.set[name]; ok {
		return all
	}
	for rest, ok := name, true; ok; {
		if _, rest, ok = strings.Cut(rest, "."); ok {
			if all, found := p.set["*."+rest]; found {
				return all
			}
		}
	}
	return nil
}

// named reports whether a name is allowed as such, wherever it leads.
func (p *Policy) named(name string) bool { return name != "" && matches(p.allow, name, netip.Addr{}) }

// Any reports whether there may be anything that can be reached.
func (p *Policy) Any() bool { return p.open || len(p.allow) > 0 }

func matches(rules []sandbox.Rule, name string, addr netip.Addr) bool {
	for i := range rules {
		if rules[i].Matches(name, addr) {
			return true
		}
	}
	return false
}

// resolves reports whether a name may be asked for at all. What can only be
// refused is not: the question alone would carry the sandbox's words out.
func (p *Policy) resolves(name string) bool {
	if matches(p.allow, name, netip.Addr{}) {
		return true
	}
	for i := range p.allow {
		if p.allow[i].Net.IsValid() {
			return true // it may resolve to what is allowed
		}
	}
	return p.open && !matches(p.deny, name, netip.Addr{})
}

// allows reports whether an address that was reached by a name may be dialed, as
// far as the sandbox's own policy goes.
func (p *Policy) allows(name string, addr netip.Addr) bool {
	return matches(p.allow, name, addr) || p.open && !matches(p.deny, name, addr)
}

// Operator is what the host's owner allows of what is not public.
type Operator struct{ Allow []netip.Prefix }

// special are the ranges that are not public.
var special = prefixes(
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
	"192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24",
	"198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
	"::/96", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
	"5f00::/16", "fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8",
	"168.63.129.16/32", // Azure's, public by its number
)

// lone are ranges of which an operator can allow single addresses only.
var lone = prefixes(
	"169.254.0.0/16", "fe80::/10", "fd00:ec2::/32", "100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32",
)

// Ranges are what the operator's word amounts to, for whoever judges packets: where
// an address is in several, the first counts, and what is in none is allowed. The
// host's own addresses are besides.
func (o *Operator) Ranges() (allowedOnes, refusedOnes, allowed, refused []netip.Prefix) {
	for _, p := range o.Allow {
		if p.IsSingleIP() {
			allowedOnes = append(allowedOnes, p)
		} else {
			allowed = append(allowed, p)
		}
	}
	return allowedOnes, slices.Clone(lone), allowed, slices.Clone(special)
}

func prefixes(list ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(list))
	for i, s := range list {
		out[i] = netip.MustParsePrefix(s)
	}
	return out
}

func within(list []netip.Prefix, a netip.Addr) bool {
	for _, p := range list {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// allows reports whether an address may be dialed by any sandbox. own tells
// whether it is one of the host's.
func (o *Operator) allows(a netip.Addr, own func(netip.Addr) bool) bool {
	a = a.Unmap()
	if !a.IsValid() || a.Zone() != "" {
		return false
	}
	single := within(lone, a)
	for _, p := range o.Allow {
		if p.Contains(a) && (!single || p.IsSingleIP()) {
			return true
		}
	}
	return !single && !within(special, a) && !own(a)
}

// ownAddress reports whether an address is one of this machine's. If that cannot
// be told, it is.
func ownAddress(a netip.Addr) bool {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return true
	}
	for _, i := range all {
		if n, ok := i.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(n.IP); ok && ip.Unmap() == a {
				return true
			}
		}
	}
	return false
}

func denied(what string) error {
	return kind.Newf(kind.Denied, "dial", "", "the sandbox may not reach %s", what)
}
