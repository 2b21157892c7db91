package egress

import (
	"errors"
	"net/http"
	"net/netip"
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

// dialable reports whether an address may be dialed by any sandbox, which is not so
// of the host's own unless its owner names them. own tells which those are.
func dialable(o *sandbox.Operator, a netip.Addr, own func(netip.Addr) bool) bool {
	return o.Allows(a) && (o.Names(a) || !own(a.Unmap()))
}

func denied(what string) error {
	return kind.Newf(kind.Denied, "dial", "", "the sandbox may not reach %s", what)
}
