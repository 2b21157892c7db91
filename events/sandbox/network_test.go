package sandbox_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/millrace/millrace/events/sandbox"
)

func TestRules(t *testing.T) {
	tests := []struct {
		rule, name, addr string
		want             bool
	}{
		{"10.0.0.0/8", "", "10.1.2.3", true},
		{"10.9.9.9/8", "x.test", "10.1.2.3", true},
		{"10.0.0.0/8", "", "11.0.0.1", false},
		{"1.2.3.4", "", "1.2.3.4", true},
		{"::ffff:1.2.3.4", "", "1.2.3.4", true},
		{"0.0.0.0/0", "", "2001:4860::1", true},
		{"2001:db8::/32", "", "2001:db8::1", true},
		{"example.com", "example.com", "1.1.1.1", true},
		{"Example.COM.", "example.com", "1.1.1.1", true},
		{"example.com", "a.example.com", "1.1.1.1", false},
		{"*.example.com", "a.b.example.com", "1.1.1.1", true},
		{"*.example.com", "example.com", "1.1.1.1", false},
		{"*.example.com", "badexample.com", "1.1.1.1", false},
		{"example.com", "", "1.1.1.1", false},
		{"*", "any.test", "1.1.1.1", true},
		{"*", "", "1.1.1.1", false},
	}
	for _, tt := range tests {
		r, err := sandbox.ParseRule(tt.rule)
		if err != nil {
			t.Errorf("%s: %v", tt.rule, err)
			continue
		}
		if got := r.Matches(tt.name, netip.MustParseAddr(tt.addr)); got != tt.want {
			t.Errorf("%s matches %q %s: %v", tt.rule, tt.name, tt.addr, got)
		}
	}
}

func TestInvalidRules(t *testing.T) {
	for _, s := range []string{"", ".", "a..b", "10.0.0.0/33", "fe80::1%eth0", "a b", "exämple.com", "*.*", "*.", "a.*.b", "http://x", "x:80",
		"2130706433", "0x7f.1", "017700000001", "127.1", "1.2.3.4.5", "a.0x1f", strings.Repeat("a", 64), strings.Repeat("a.", 127) + "a"} {
		if r, err := sandbox.ParseRule(s); err == nil {
			t.Errorf("%q is %+v", s, r)
		}
	}
}

func FuzzParseRule(f *testing.F) {
	for _, s := range []string{"10.0.0.0/8", "::1", "*.example.com", "*", "0x7f.1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := sandbox.ParseRule(s)
		if err == nil && !r.Net.IsValid() && r.Name == "" && !r.Below {
			t.Errorf("%q names nothing: %+v", s, r)
		}
		if name, ok := sandbox.CleanName(s); ok {
			if _, err := netip.ParseAddr(name); err == nil {
				t.Errorf("%q is an address", name)
			}
		}
	})
}
