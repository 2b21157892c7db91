package family

import (
	"net"
	"strings"
)

// Hosts are the host names of the gateway, each with or without a port. Empty names restrict
// nothing: every path is served on every host.
type Hosts struct {
	API     string // host of e2a's routes, except those of Runtime
	Runtime string // host of connections to the runtimes of conversations, which has no other routes
}

// nowhere is the part of paths that the host of a request does not have. No route belongs to its
// family.
var nowhere = Part{Credentials: Public, Errors: e2a.Errors}

// serves reports whether a part is served on a host.
func (h Hosts) serves(p *Part, host string) bool {
	on := Hostname(host)
	switch {
	case h.Runtime != "" && on == Hostname(h.Runtime):
		return p.Runtime
	case p.Runtime:
		return h.Runtime == ""
	case p.Family == E2A && h.API != "":
		return on == Hostname(h.API)
	}
	return true
}

// Hostname returns the host of a Host header without its port, in lower case.
func Hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
}
