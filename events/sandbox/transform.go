package sandbox

import (
	"net"
	"net/netip"
	"net/textproto"
	"strconv"
	"strings"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/seal"
)

// Transform sets headers in a sandbox's requests to a domain. It does not allow the domain.
// If several match a host, the exact one applies, otherwise the one with the longest name.
// All transforms of one domain apply, in order.
type Transform struct {
	Domain  string // a name in lower case, or "*." and a name for all names below it
	Headers []Header
}

// Header replaces a request's headers of that name.
type Header struct {
	Name  string
	Value seal.Text // see [HeaderPlace]
}

// Proxy is a SOCKS5 proxy for a sandbox's connections, once they are allowed.
type Proxy struct {
	Address  string    // host:port
	User     string    // empty: no authentication
	Password seal.Text // see [ProxyPlace]
}

// Limits, equal to E2B's.
const (
	maxDomains     = 10
	maxTransforms  = 100 // of all domains
	maxHeaders     = 20  // of one transform
	maxHeaderValue = 8 << 10
	maxSocksWord   = 255 // RFC 1929
	maxPorts       = 64
	envdPort       = 49983
)

// ParseDomain parses the domain of a transform: "example.com" or "*.example.com".
func ParseDomain(s string) (string, error) {
	r, err := ParseRule(s)
	if err != nil || r.Net.IsValid() || r.Name == "" {
		return "", kind.Newf(kind.Invalid, "check network", "", "rules: %q is not a domain", s)
	}
	if r.Below {
		return "*." + r.Name, nil
	}
	return r.Name, nil
}

// networkRecord stands for the record of a sealed value in a network. A fork copies the network
// to a record of its own, so that the value is bound to its tenant and use instead.
const networkRecord = "network"

// HeaderPlace returns the place of a header's sealed value.
func HeaderPlace(tenant, domain, name string) seal.Place {
	return seal.Place{Tenant: tenant, Record: networkRecord, Field: "header " + name + " for " + domain}
}

// ProxyPlace returns the place of a proxy's sealed password.
func ProxyPlace(tenant, address string) seal.Place {
	return seal.Place{Tenant: tenant, Record: networkRecord, Field: "password for " + address}
}

// ParseHeader validates a header from outside for a tenant's requests to a domain, and seals
// its value. Its errors do not contain the value.
func ParseHeader(r *seal.Ring, tenant, domain, name, value string) (Header, error) {
	switch {
	case name == "" || len(name) > maxName || strings.Trim(name, tokenChars) != "":
		return Header{}, kind.Newf(kind.Invalid, "check network", "", "rules: %q is not a valid header name", name)
	case reserved(name):
		return Header{}, kind.Newf(kind.Invalid, "check network", "", "rules: the header %s belongs to the connection", name)
	case len(value) > maxHeaderValue:
		return Header{}, kind.Newf(kind.Invalid, "check network", "", "rules: the value of %s is longer than %d bytes", name, maxHeaderValue)
	case strings.ContainsFunc(value, control):
		return Header{}, kind.Newf(kind.Invalid, "check network", "", "rules: the value of %s has control characters", name)
	case strings.Count(value, markerOpen) != strings.Count(value, secretOpen)+strings.Count(value, tokenOpen):
		return Header{}, kind.Newf(kind.Unimplemented, "check network", "", "rules: the value of %s has a marker of E2B's that is not implemented here", name)
	}
	sealed, err := r.Seal(HeaderPlace(tenant, domain, name), value)
	return Header{Name: name, Value: sealed}, err
}

const tokenChars = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

// In a header's value, ${e2b.secrets.NAME} stands for a secret of the tenant and
// ${e2b.identity.tokens.NAME} for a token of the sandbox. They are replaced in each
// request.
const (
	markerOpen  = "${e2b."
	secretOpen  = "${e2b.secrets."
	tokenOpen   = "${e2b.identity.tokens."
	markerClose = "}"
)

// Markers returns the replacement of a marker, by its name.
type Markers struct {
	Secret, Token func(name string) (string, error)
}

// Expand replaces the secrets and tokens in a header's value. It returns their errors, or
// Precondition if a replacement is not valid in a header.
func (m *Markers) Expand(value string) (string, error) {
	var out strings.Builder
	for {
		before, _, ok := strings.Cut(value, markerOpen)
		out.WriteString(before)
		if !ok {
			return out.String(), nil
		}
		rest := value[len(before):]
		open, what := secretOpen, m.Secret
		if strings.HasPrefix(rest, tokenOpen) {
			open, what = tokenOpen, m.Token
		}
		name, known := strings.CutPrefix(rest, open)
		name, after, closed := strings.Cut(name, markerClose)
		if !known || !closed {
			return "", kind.New(kind.Precondition, "expand", "", "a marker is not terminated, or unknown")
		}
		text, err := what(name)
		if err != nil {
			return "", err
		}
		if strings.ContainsFunc(text, control) {
			return "", kind.Newf(kind.Precondition, "expand", "", "the secret %q cannot be in a header", name)
		}
		out.WriteString(text)
		value = after
	}
}

func control(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }

// reserved reports whether a header concerns the connection, the body or the host of a
// request, not its server.
func reserved(name string) bool {
	switch textproto.CanonicalMIMEHeaderKey(name) {
	case "Host", "Connection", "Content-Length", "Expect", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization",
		"Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade":
		return true
	}
	return false
}

// ParseProxy validates a tenant's proxy from outside, and seals its password. An address that the
// operator does not allow is Invalid. A name is checked by hosts when they dial it.
func ParseProxy(ring *seal.Ring, o *Operator, tenant, address, user, password string) (*Proxy, error) {
	host, port, err := net.SplitHostPort(address)
	n, perr := strconv.ParseUint(port, 10, 16)
	r, rerr := ParseRule(host)
	switch {
	case err != nil || perr != nil || n == 0 || rerr != nil || r.Below || r.Net.IsValid() && !r.Net.IsSingleIP():
		return nil, kind.Newf(kind.Invalid, "check network", "", "egressProxy: %q is not a host and port", address)
	case r.Net.IsValid() && !o.Allows(r.Net.Addr()), r.Name == "localhost" && !o.Names(netip.IPv6Loopback()) && !o.Names(netip.AddrFrom4([4]byte{127, 0, 0, 1})):
		return nil, kind.Newf(kind.Invalid, "check network", "", "egressProxy: %s is not public", address)
	case len(user) > maxSocksWord || len(password) > maxSocksWord:
		return nil, kind.Newf(kind.Invalid, "check network", "", "egressProxy: username and password have at most %d bytes", maxSocksWord)
	case user == "" && password != "":
		return nil, kind.New(kind.Invalid, "check network", "", "egressProxy: a password needs a username")
	}
	sealed, err := ring.Seal(ProxyPlace(tenant, address), password)
	return &Proxy{Address: address, User: user, Password: sealed}, err
}

// checkTransforms checks the number of transforms.
func (n *Network) checkTransforms() error {
	domains := make(map[string]struct{})
	for _, t := range n.Transforms {
		domains[t.Domain] = struct{}{}
		if len(t.Headers) > maxHeaders {
			return kind.Newf(kind.Invalid, "check network", "", "rules: more than %d headers for %s", maxHeaders, t.Domain)
		}
	}
	if len(domains) > maxDomains || len(n.Transforms) > maxTransforms {
		return kind.Newf(kind.Invalid, "check network", "", "rules: more than %d domains or %d rules", maxDomains, maxTransforms)
	}
	return nil
}

func (n *Network) checkPorts() error {
	if len(n.HTTPSPorts) > maxPorts {
		return kind.Newf(kind.Invalid, "check network", "", "httpsPorts: more than %d ports", maxPorts)
	}
	for _, p := range n.HTTPSPorts {
		if p < 1 || p > 1<<16-1 || p == envdPort {
			return kind.Newf(kind.Invalid, "check network", "", "httpsPorts: %d is not allowed", p)
		}
	}
	return nil
}
