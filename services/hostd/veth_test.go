package hostd

import (
	"net/netip"
	"testing"
)

func TestNameServerIsReachable(t *testing.T) {
	for _, tt := range []struct{ name, dns, allow, want string }{
		{"none", "", "", publicDNS},
		{"public", "9.9.9.9:53", "", "9.9.9.9"},
		{"private", "10.0.0.53:53", "", publicDNS},
		{"private and allowed", "10.0.0.53:53", "10.0.0.0/8", "10.0.0.53"},
		{"another port", "9.9.9.9:5353", "", publicDNS},
		{"IPv6", "[2620:fe::fe]:53", "", publicDNS},
		{"the host's own", "127.0.0.53:53", "127.0.0.0/8", publicDNS},
		{"a name", "dns.test:53", "", publicDNS},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := Config{EgressDNS: tt.dns}
			if tt.allow != "" {
				cfg.EgressAllow = []netip.Prefix{netip.MustParsePrefix(tt.allow)}
			}
			if got := cfg.nameServer(); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}
