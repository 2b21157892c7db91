package sandbox_test

import (
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/seal/sealtest"
)

func TestDomainsOfTransforms(t *testing.T) {
	for in, want := range map[string]string{
		"a.test": "a.test", "A.Test.": "a.test", "*.a.test": "*.a.test", "*.COM": "*.com", "localhost": "localhost",
		"*": "", "": "", "10.0.0.1": "", "10.0.0.0/8": "", "::1": "", "a.*.test": "", "**.a.test": "", "a test": "", "a.test:443": "", "https://a.test": "", "2130706433": "",
	} {
		got, err := sandbox.ParseDomain(in)
		if got != want || (err == nil) != (want != "") || err != nil && !kind.Is(err, kind.Invalid) {
			t.Errorf("%q: %q, %v; want %q", in, got, err, want)
		}
	}
}

// No error contains a value.
func TestHeadersOfTransforms(t *testing.T) {
	s := sealtest.Ring(t)
	for _, tt := range []struct {
		name, value string
		want        kind.Kind
		ok          bool
	}{
		{"Authorization", "Bearer canary", 0, true}, {"x-empty", "", 0, true}, {"X-Utf8", "canary ä", 0, true}, {"X-Tab", "canary\tb", 0, true},
		{"", "canary", kind.Invalid, false}, {"X Y", "canary", kind.Invalid, false}, {"X:", "canary", kind.Invalid, false}, {"X\r\nY", "canary", kind.Invalid, false},
		{"host", "canary", kind.Invalid, false}, {"Transfer-encoding", "canary", kind.Invalid, false}, {"CONNECTION", "canary", kind.Invalid, false},
		{"X", "canary\r\nY: z", kind.Invalid, false}, {"X", "canary\x00", kind.Invalid, false}, {"X", "canary" + strings.Repeat("x", 8<<10), kind.Invalid, false},
		{"X", "canary ${e2b.secrets.name}", 0, true}, {"X", "canary ${e2b.secrets.a} ${e2b.x}", kind.Unimplemented, false}, {"X", "canary ${e2b.identity.tokens.aws}", 0, true}, {"X", "canary ${e2b.identity.aws}", kind.Unimplemented, false},
	} {
		h, err := sandbox.ParseHeader(s, "t", "a.test", tt.name, tt.value)
		if (err == nil) != tt.ok || err != nil && (!kind.Is(err, tt.want) || strings.Contains(err.Error(), "canary")) {
			t.Errorf("%q: %.40q: %v", tt.name, tt.value, err)
		}
		if got, err := s.Open(sandbox.HeaderPlace("t", "a.test", tt.name), h.Value); tt.ok && (got != tt.value || err != nil || strings.Contains(string(h.Value), "canary")) {
			t.Errorf("%q: sealed %q, opened %q, %v", tt.name, h.Value, got, err)
		}
	}
}

func TestSecretsInHeaders(t *testing.T) {
	known := func(name string) (string, error) {
		switch name {
		case "a":
			return "A", nil
		case "nested":
			return "${e2b.secrets.a}", nil
		case "lines":
			return "canary\r\nX: y", nil
		}
		return "", kind.New(kind.Precondition, "", "", "no such secret")
	}
	markers := sandbox.Markers{Secret: known, Token: func(name string) (string, error) {
		if name != "a b" {
			return "", kind.New(kind.Precondition, "", "", "no such token")
		}
		return "T", nil
	}}
	for in, want := range map[string]string{
		"Bearer ${e2b.identity.tokens.a b}": "Bearer T", "${e2b.secrets.a}${e2b.identity.tokens.a b}${e2b.secrets.a}": "ATA", "${e2b.identity.tokens.a}": "-",
		"${e2b.identity.tokens.": "-", "${e2b.identity.a b}": "-",
		"": "", "plain $x {y}": "plain $x {y}", "Bearer ${e2b.secrets.a}!": "Bearer A!", "${e2b.secrets.a}${e2b.secrets.a}": "AA",
		"${e2b.secrets.nested}": "${e2b.secrets.a}", "${e2b.secrets.b}": "-", "${e2b.secrets.a": "-", "${e2b.secrets.lines}": "-", "${e2b.secrets.}": "-",
	} {
		got, err := markers.Expand(in)
		if got != strings.TrimPrefix(want, "-") || (err != nil) != (want == "-") || err != nil && strings.Contains(err.Error(), "canary") {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
}

func TestProxies(t *testing.T) {
	s := sealtest.Ring(t)
	long := strings.Repeat("x", 256)
	operator := sandbox.Operator{Allow: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("169.254.0.0/16")}}
	for _, tt := range []struct {
		address, user, password string
		ok                      bool
	}{
		{"a.test:1080", "", "", true}, {"8.8.8.8:1", "u", "", true}, {"[2001:4860::1]:65535", "u", "canary", true},
		{"a.test", "", "", false}, {"a.test:0", "", "", false}, {"a.test:65536", "", "", false}, {"a.test:x", "", "", false}, {":1080", "", "", false},
		{"*.a.test:1080", "", "", false}, {"*:1080", "", "", false}, {"10.0.0.0/8:1080", "", "", false}, {"0x7f.1:1080", "", "", false},
		{"socks5://a.test:1080", "", "", false}, {"u:p@a.test:1080", "", "", false}, {"", "", "", false},
		{"10.2.0.1:1080", "", "", false}, {"10.1.0.1:1080", "", "", true}, {"169.254.169.254:80", "", "", false},
		{"[::1]:1080", "", "", false}, {"[::ffff:192.168.1.1]:1080", "", "", false}, {"localhost:1080", "", "", false}, {"LOCALHOST.:1080", "", "", false},
		{"a.test:1080", "", "canary", false}, {"a.test:1080", long, "", false}, {"a.test:1080", "u", "canary" + long, false},
	} {
		p, err := sandbox.ParseProxy(s, &operator, "t", tt.address, tt.user, tt.password)
		if (err == nil) != tt.ok || err != nil && (!kind.Is(err, kind.Invalid) || strings.Contains(err.Error(), "canary")) {
			t.Errorf("%q: %v", tt.address, err)
		}
		if p != nil && strings.Contains(string(p.Password), "canary") {
			t.Errorf("%q: the password is not sealed", tt.address)
		}
	}
}

func TestLimitsOfANetwork(t *testing.T) {
	transforms := func(domains, each, headers int) (out []sandbox.Transform) {
		for i := range domains * each {
			out = append(out, sandbox.Transform{Domain: "a" + strconv.Itoa(i/each) + ".test", Headers: make([]sandbox.Header, headers)})
		}
		return out
	}
	for _, tt := range []struct {
		name string
		n    sandbox.Network
		ok   bool
	}{
		{"10 domains", sandbox.Network{Transforms: transforms(10, 2, 20)}, true},
		{"11 domains", sandbox.Network{Transforms: transforms(11, 1, 1)}, false},
		{"21 headers", sandbox.Network{Transforms: transforms(1, 1, 21)}, false},
		{"101 transforms", sandbox.Network{Transforms: transforms(1, 101, 0)}, false},
		{"ports", sandbox.Network{HTTPSPorts: []int{1, 443, 65535}}, true},
		{"port 0", sandbox.Network{HTTPSPorts: []int{0}}, false},
		{"port -1", sandbox.Network{HTTPSPorts: []int{-1}}, false},
		{"port 65536", sandbox.Network{HTTPSPorts: []int{65536}}, false},
		{"envd's port", sandbox.Network{HTTPSPorts: []int{49983}}, false},
		{"65 ports", sandbox.Network{HTTPSPorts: make([]int, 65)}, false},
	} {
		if err := tt.n.Check(); (err == nil) != tt.ok {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}
