package peer

import (
	"net/netip"
	"testing"
)

func TestClient(t *testing.T) {
	proxies := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}
	for _, tt := range []struct {
		name, from string
		forwarded  []string
		want       string
	}{
		{"no proxy", "192.0.2.1", nil, "192.0.2.1"},
		{"a header from a client", "192.0.2.1", []string{"203.0.113.9"}, "192.0.2.1"},
		{"a proxy without a header", "10.0.0.1", nil, "10.0.0.1"},
		{"a proxy", "10.0.0.1", []string{"192.0.2.1"}, "192.0.2.1"},
		{"a mapped proxy", "::ffff:10.0.0.1", []string{"192.0.2.1"}, "192.0.2.1"},
		{"two proxies", "10.0.0.1", []string{"192.0.2.1, 10.0.0.2"}, "192.0.2.1"},
		{"a forged entry", "10.0.0.1", []string{"203.0.113.9, 192.0.2.1"}, "192.0.2.1"},
		{"a forged header", "10.0.0.1", []string{"203.0.113.9", "192.0.2.1"}, "192.0.2.1"},
		{"a port", "10.0.0.1", []string{"192.0.2.1:443"}, "192.0.2.1"},
		{"IPv6 with a port", "fd00::1", []string{"[2001:db8::1]:443"}, "2001:db8::1"},
		{"IPv6 in brackets", "fd00::1", []string{"[2001:db8::1]"}, "2001:db8::1"},
		{"no address", "10.0.0.1", []string{"192.0.2.1, unknown"}, "10.0.0.1"},
		{"no address behind a proxy", "10.0.0.1", []string{"x, 10.0.0.2"}, "10.0.0.2"},
		{"proxies only", "10.0.0.1", []string{"10.0.0.3, 10.0.0.2"}, "10.0.0.3"},
	} {
		if got := Client(netip.MustParseAddr(tt.from), tt.forwarded, proxies); got != netip.MustParseAddr(tt.want) {
			t.Errorf("%s: %v, want %s", tt.name, got, tt.want)
		}
	}
}

// A client that is not a proxy cannot change its address.
func FuzzClient(f *testing.F) {
	f.Add("10.0.0.1, 192.0.2.1")
	f.Add("[::1]:80,,")
	proxies := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	client := netip.MustParseAddr("192.0.2.7")
	f.Fuzz(func(t *testing.T, header string) {
		if got := Client(client, []string{header}, proxies); got != client {
			t.Errorf("%q: %v", header, got)
		}
		if got := Client(netip.MustParseAddr("10.0.0.1"), []string{header, client.String()}, proxies); got != client {
			t.Errorf("%q behind a proxy: %v", header, got)
		}
	})
}
