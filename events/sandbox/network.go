package sandbox

import (
	"net/netip"
	"strings"

	"github.com/millrace/millrace/events/kind"
)

// Network is what a sandbox may reach, and who may reach it. Hosts refuse
// private and metadata addresses whatever it says.
type Network struct {
	Internet bool     // what no rule names is allowed
	Allow    []string // rules (ParseRule) that win over Deny
	Deny     []string
	Private  bool   // whoever visits its ports needs its traffic token
	MaskHost string // the Host that its servers see, with ${PORT} for the port; empty: the visitor's

	HTTPSPorts []int       // whose servers speak TLS
	Transforms []Transform // of the requests that it sends
	Proxy      *Proxy      // through which its connections go; nil: none
}

// maxRules is the most rules of each kind.
const maxRules = 512

// Check says what is wrong with a network that came from outside.
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
		return kind.New(kind.Invalid, "check network", "", "the masked host cannot be")
	}
	if err := n.checkPorts(); err != nil {
		return err
	}
	return n.checkTransforms()
}

// Rule names addresses: by a prefix, by a name, or by all names below one.
type Rule struct {
	Net   netip.Prefix // not valid: by name
	Name  string       // in lower case, without a dot at its end
	Below bool         // the names below Name, and not Name itself; an empty Name is all
}

// maxName is the longest name there is.
const maxName = 253

// ParseRule reads "10.0.0.0/8", "::1", "example.com", "*.example.com" or "*".
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
		return Rule{}, kind.Newf(kind.Invalid, "parse rule", "", "%q is no address, prefix or domain", s)
	}
	return Rule{Name: name, Below: below}, nil
}

// CleanName gives a domain's name in lower case without a dot at its end; false
// if no domain is called so. A name whose last label is a number is none: some
// take it for an address, as they take "0x7f.1" or "2130706433".
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

// Matches reports whether the rule names an address that was reached by a name,
// which is empty if it was reached by itself.
func (r *Rule) Matches(name string, addr netip.Addr) bool {
	switch {
	case r.Net.IsValid():
		// E2B's word for everything, which has no other for IPv6.
		return r.Everything() || r.Net.Contains(addr)
	case !r.Below:
		return name == r.Name
	case r.Name == "":
		return name != ""
	}
	return strings.HasSuffix(name, "."+r.Name)
}

// Everything reports whether the rule names all addresses.
func (r *Rule) Everything() bool { return r.Net.IsValid() && r.Net.Bits() == 0 }
