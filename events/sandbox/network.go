package sandbox

import (
	"net/netip"
	"strings"

	"github.com/millrace/millrace/events/kind"
)

// Network lists the destinations and the clients of a sandbox. Hosts block private and
// metadata addresses whatever it allows.
type Network struct {
	Internet bool     // default for destinations without a rule
	Allow    []string // rules (ParseRule) that take precedence over Deny
	Deny     []string
	Private  bool   // clients of its ports need its traffic token
	MaskHost string // Host header sent to its servers, with ${PORT} for the port; empty: the client's

	HTTPSPorts []int       // ports whose servers use TLS
	Transforms []Transform // of outgoing requests
	Proxy      *Proxy      // for outgoing connections; nil: none
}

// maxRules is the maximum number of rules in each list.
const maxRules = 512

// Check validates a network from outside.
func (n *Network) Check() error {
	if len(n.Allow) > maxRules || len(n.Deny) > maxRules {
		return kind.Newf(kind.Invalid, "check network", "", "more than %d rules", maxRules)
	}
	for _, list := range [...][]string{n.Allow, n.Deny} {
		for _, s := range list {
			if _, err := ParseRule(s); err != nil {
				return err
			}
		}
	}
	if len(n.MaskHost) > maxName || strings.ContainsAny(n.MaskHost, "\r\n\x00 /") {
		return kind.New(kind.Invalid, "check network", "", "the masked host is not a valid host")
	}
	if err := n.checkPorts(); err != nil {
		return err
	}
	return n.checkTransforms()
}

// Rule matches addresses: by prefix, by domain name, or by all names below one.
type Rule struct {
	Net   netip.Prefix // invalid: the rule is by name
	Name  string       // in lower case, without a trailing dot
	Below bool         // match the names below Name but not Name itself; with an empty Name: all
}

// maxName is the maximum length of a domain name.
const maxName = 253

// ParseRule parses "10.0.0.0/8", "::1", "example.com", "*.example.com" or "*".
func ParseRule(s string) (Rule, error) {
	if p, err := netip.ParsePrefix(s); err == nil {
		return Rule{Net: p.Masked()}, nil
	}
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		a = a.Unmap()
		return Rule{Net: netip.PrefixFrom(a, a.BitLen())}, nil
	}
	if s == "*" {
		return Rule{Below: true}, nil
	}
	rest, below := strings.CutPrefix(s, "*.")
	name, ok := CleanName(rest)
	if !ok {
		return Rule{}, kind.Newf(kind.Invalid, "parse rule", "", "%q is not an address, prefix or domain", s)
	}
	return Rule{Name: name, Below: below}, nil
}

// CleanName returns a domain name in lower case without a trailing dot; false if s is not a
// valid domain name. A name whose last label is a number is not valid, because some
// programs parse it as an address, like "0x7f.1" or "2130706433".
func CleanName(s string) (string, bool) {
	s = strings.ToLower(strings.TrimSuffix(s, "."))
	if s == "" || len(s) > maxName {
		return "", false
	}
	var last string
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > 63 || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return "", false
		}
		last = label
	}
	number := strings.Trim(last, "0123456789") == "" || strings.HasPrefix(last, "0x") && strings.Trim(last[2:], "0123456789abcdef") == ""
	return s, !number
}

// Matches reports whether the rule matches an address that was resolved from name, which is
// empty if the address was used directly.
func (r *Rule) Matches(name string, addr netip.Addr) bool {
	switch {
	case r.Net.IsValid():
		// E2B's pattern for everything; it has no other for IPv6.
		return r.Everything() || r.Net.Contains(addr)
	case !r.Below:
		return name == r.Name
	case r.Name == "":
		return name != ""
	}
	return strings.HasSuffix(name, "."+r.Name)
}

// Everything reports whether the rule matches all addresses.
func (r *Rule) Everything() bool { return r.Net.IsValid() && r.Net.Bits() == 0 }
