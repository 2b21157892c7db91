package egress

import (
	"errors"
	"net/http"
	"net/netip"
	"strings"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/seal"
)

// Policy determines what one sandbox may reach. It is immutable.
type Policy struct {
	open        bool // hosts that no rule names are allowed
	allow, deny []sandbox.Rule
	set         map[string][]header // by the domains of transforms
	proxy       upstream
}

// header replaces the header of a request.
type header struct{ name, value string }

// Opener decrypts sealed values, as a seal.Ring does.
type Opener func(seal.Place, seal.Text) (string, error)

// NewPolicy returns the policy in the record of a tenant's sandbox. If the record cannot be read, for
// example because it was sealed with another key, nothing may be reached.
func NewPolicy(n *sandbox.Network, tenant string, open Opener) *Policy {
	p := &Policy{open: n.Internet}
	var err1, err2 error
	p.allow, err1 = rules(n.Allow)
	p.deny, err2 = rules(n.Deny)
	if errors.Join(err1, err2, p.unseal(n, tenant, open)) != nil {
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

// unseal decrypts the sealed values in the record.
func (p *Policy) unseal(n *sandbox.Network, tenant string, open Opener) error {
	for _, t := range n.Transforms {
		if p.set == nil {
			p.set = make(map[string][]header)
		}
		all := p.set[t.Domain]
		for _, h := range t.Headers {
			value, err := open(sandbox.HeaderPlace(tenant, t.Domain, h.Name), h.Value)
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
	password, err := open(sandbox.ProxyPlace(tenant, n.Proxy.Address), n.Proxy.Password)
	p.proxy = upstream{n.Proxy.Address, n.Proxy.User, password}
	return err
}

// Transforms reports whether the policy transforms any requests.
func (p *Policy) Transforms() bool { return len(p.set) > 0 }

// headers returns the headers for requests to a name: those for the name itself, else
// those for the longest domain above it.
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

// named reports whether a name is allowed as such, with any address.
func (p *Policy) named(name string) bool { return name != "" && matches(p.allow, name, netip.Addr{}) }

// Any reports whether anything might be reachable.
func (p *Policy) Any() bool { return p.open || len(p.allow) > 0 }

func matches(rules []sandbox.Rule, name string, addr netip.Addr) bool {
	for i := range rules {
		if rules[i].Matches(name, addr) {
			return true
		}
	}
	return false
}

// resolves reports whether a name may be resolved at all. A name that can only be
// refused may not: the query alone could carry data out.
func (p *Policy) resolves(name string) bool {
	if matches(p.allow, name, netip.Addr{}) {
		return true
	}
	for i := range p.allow {
		if p.allow[i].Net.IsValid() {
			return true // it may resolve to an allowed address
		}
	}
	return p.open && !matches(p.deny, name, netip.Addr{})
}

// allows reports whether the sandbox's own policy allows an address that was reached by
// a name.
func (p *Policy) allows(name string, addr netip.Addr) bool {
	return matches(p.allow, name, addr) || p.open && !matches(p.deny, name, addr)
}

// dialable reports whether any sandbox may dial an address. The host's own addresses, which
// own reports, are allowed only if the operator names them.
func dialable(o *sandbox.Operator, a netip.Addr, own func(netip.Addr) bool) bool {
	return o.Allows(a) && (o.Names(a) || !own(a.Unmap()))
}

func denied(what string) error {
	return kind.Newf(kind.Denied, "dial", "", "the sandbox may not reach %s", what)
}
