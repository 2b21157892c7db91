package outbound

import (
	"net/netip"
	"strings"
)

const (
	maxName  = 253
	maxLabel = 63
)

// parseHost returns a host without a trailing dot and in lower case. It accepts IP addresses in
// their usual form, and names of letters, digits, hyphens and underscores. Other spellings of an
// address, such as 0x7f.1, 2130706433 or digits of another script, are rejected: some
// resolvers take them for addresses.
func parseHost(field, host string) (string, error) {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if _, err := netip.ParseAddr(host); err == nil {
		return host, nil
	}
	if len(host) > maxName {
		return "", invalidf("%s has a host name that is longer than %d bytes", field, maxName)
	}
	labels := strings.Split(host, ".")
	for _, label := range labels {
		if label == "" || len(label) > maxLabel || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return "", invalidf("%s has an invalid host name", field)
		}
	}
	if isNumber(labels[len(labels)-1]) {
		return "", invalidf("%s has an invalid IP address", field)
	}
	return host, nil
}

// isNumber reports whether the last label of a host makes it an address: no top-level domain is
// a decimal or hexadecimal number.
func isNumber(label string) bool {
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}

// isLocalhost reports whether a name is that of the loopback addresses by definition (RFC 6761).
func isLocalhost(name string) bool {
	return name == "localhost" || strings.HasSuffix(name, ".localhost")
}
