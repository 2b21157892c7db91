package sandboxes

import (
	"maps"
	"reflect"
	"slices"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/seal"
	"github.com/millrace/millrace/services/gateway/internal/e2b/internal/wire"
)

// networks converts between the networks of sandboxes and those of the API.
type networks struct {
	sealer   *seal.Ring
	operator sandbox.Operator
}

// networkBody is E2B's SandboxNetworkConfig and its update.
type networkBody struct {
	AllowOut            []string              `json:"allowOut"`
	DenyOut             []string              `json:"denyOut"`
	AllowPublicTraffic  *bool                 `json:"allowPublicTraffic"`
	MaskRequestHost     string                `json:"maskRequestHost"`
	AllowInternetAccess *bool                 `json:"allow_internet_access"`
	EgressProxy         *proxyBody            `json:"egressProxy"`
	Rules               map[string][]ruleBody `json:"rules"`
	HTTPSPorts          []int                 `json:"httpsPorts"`
}

// proxyBody is SandboxEgressProxyConfig; the password is never returned.
type proxyBody struct {
	Address  string `json:"address"`
	Username string `json:"username,omitempty"`
	Password string `json:"password,omitempty"`
}

// ruleBody is E2B's SandboxNetworkRule.
type ruleBody struct {
	Transform *transformBody `json:"transform,omitempty"`
}

type transformBody struct {
	Headers map[string]string `json:"headers,omitempty"`
}

// parse returns the network that the body describes for a tenant; internet is the default for
// destinations without a rule.
func (ns *networks) parse(b *networkBody, tenant string, internet bool) (sandbox.Network, error) {
	n := sandbox.Network{
		Internet: internet, Allow: b.AllowOut, Deny: b.DenyOut, HTTPSPorts: b.HTTPSPorts,
		Private: b.AllowPublicTraffic != nil && !*b.AllowPublicTraffic, MaskHost: b.MaskRequestHost,
	}
	var err error
	if n.Transforms, err = b.transforms(ns.sealer, tenant); err != nil {
		return n, err
	}
	if p := b.EgressProxy; p != nil {
		if n.Proxy, err = sandbox.ParseProxy(ns.sealer, &ns.operator, tenant, p.Address, p.Username, p.Password); err != nil {
			return n, err
		}
	}
	if err := n.Check(); err != nil {
		return n, err
	}
	return n, checkLists(&n)
}

// checkLists rejects valid lists that E2B rejects: domains cannot be denied, and can be
// allowed only if everything else is denied.
func checkLists(n *sandbox.Network) error {
	closed := !n.Internet
	for _, s := range n.Deny {
		r, err := sandbox.ParseRule(s)
		if err != nil {
			return err
		}
		if !r.Net.IsValid() {
			return wire.Invalid("denyOut: %q is not an address or prefix: domain names are not supported for deny rules", s)
		}
		closed = closed || r.Everything()
	}
	for _, s := range n.Allow {
		if r, err := sandbox.ParseRule(s); err != nil || !closed && !r.Net.IsValid() {
			return wire.Invalid("allowOut: %q is a domain, which can be allowed only where denyOut has 0.0.0.0/0 or allow_internet_access is false", s)
		}
	}
	return nil
}

// transforms returns the rules in a fixed order, which matters only among the rules of one
// domain.
func (b *networkBody) transforms(ring *seal.Ring, tenant string) ([]sandbox.Transform, error) {
	var all []sandbox.Transform
	for _, key := range slices.Sorted(maps.Keys(b.Rules)) {
		domain, err := sandbox.ParseDomain(key)
		if err != nil {
			return nil, err
		}
		rules := b.Rules[key]
		if len(rules) == 0 {
			rules = make([]ruleBody, 1) // counts as an empty rule that precedes a wildcard's
		}
		for _, r := range rules {
			t := sandbox.Transform{Domain: domain}
			if r.Transform != nil {
				for _, name := range slices.Sorted(maps.Keys(r.Transform.Headers)) {
					h, err := sandbox.ParseHeader(ring, tenant, domain, name, r.Transform.Headers[name])
					if err != nil {
						return nil, err
					}
					t.Headers = append(t.Headers, h)
				}
			}
			all = append(all, t)
		}
	}
	return all, nil
}

// body returns the network for the sandbox's owner; nil if it is the default. It
// includes header values, as E2B's response does: a client that reads them may also set
// them.
func (ns *networks) body(st *sandbox.State) (any, error) {
	n := &st.Network
	if reflect.DeepEqual(n, &sandbox.Network{Internet: n.Internet}) {
		return nil, nil
	}
	out := fiber.Map{
		"allowOut": orEmpty(n.Allow), "denyOut": orEmpty(n.Deny),
		"allowPublicTraffic": !n.Private, "maskRequestHost": n.MaskHost,
	}
	if len(n.HTTPSPorts) > 0 {
		out["httpsPorts"] = n.HTTPSPorts
	}
	if n.Proxy != nil {
		out["egressProxy"] = proxyBody{Address: n.Proxy.Address, Username: n.Proxy.User}
	}
	if len(n.Transforms) == 0 {
		return out, nil
	}
	rules := make(map[string][]ruleBody)
	for _, t := range n.Transforms {
		headers := make(map[string]string, len(t.Headers))
		for _, set := range t.Headers {
			value, err := ns.sealer.Open(sandbox.HeaderPlace(st.Tenant, t.Domain, set.Name), set.Value)
			if err != nil {
				return nil, err
			}
			headers[set.Name] = value
		}
		rules[t.Domain] = append(rules[t.Domain], ruleBody{Transform: &transformBody{headers}})
	}
	out["rules"] = rules
	return out, nil
}

func orEmpty(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}
