package sandbox_test

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
)

func TestCheckIdentity(t *testing.T) {
	token := func(name, audience, typ string) sandbox.Token {
		return sandbox.Token{Name: name, Audience: audience, Type: typ}
	}
	for name, tt := range map[string]struct {
		tokens []sandbox.Token
		ok     bool
	}{
		"none":               {nil, true},
		"one":                {[]sandbox.Token{token("a b/é.$", "sts.amazonaws.com", sandbox.TokenJWT)}, true},
		"six":                {make([]sandbox.Token, 6), false},
		"no name":            {[]sandbox.Token{token("", "x", sandbox.TokenJWT)}, false},
		"a brace":            {[]sandbox.Token{token("a}b", "x", sandbox.TokenJWT)}, false},
		"a control":          {[]sandbox.Token{token("a\x00", "x", sandbox.TokenJWT)}, false},
		"a long name":        {[]sandbox.Token{token(strings.Repeat("a", 129), "x", sandbox.TokenJWT)}, false},
		"no audience":        {[]sandbox.Token{token("a", "", sandbox.TokenJWT)}, false},
		"a long audience":    {[]sandbox.Token{token("a", strings.Repeat("a", 1025), sandbox.TokenJWT)}, false},
		"no type":            {[]sandbox.Token{token("a", "x", "")}, false},
		"another type":       {[]sandbox.Token{token("a", "x", "X509-SVID")}, false},
		"a type in no case":  {[]sandbox.Token{token("a", "x", "jwt-svid")}, false},
		"the second of them": {[]sandbox.Token{token("a", "x", sandbox.TokenJWT), token("b", "", sandbox.TokenJWT)}, false},
	} {
		i := sandbox.Identity{Tokens: tt.tokens}
		if err := i.Check(); (err == nil) != tt.ok || err != nil && !kind.Is(err, kind.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestIssuers(t *testing.T) {
	for in, want := range map[string]string{
		"https://id.example.com": "https://id.example.com", "http://127.0.0.1:7300/": "http://127.0.0.1:7300", "https://a.test/b/": "https://a.test/b",
		"": "-", "a.test": "-", "ftp://a.test": "-", "https://": "-", "https://u:p@a.test": "-", "https://a.test?x": "-", "https://a.test#x": "-",
	} {
		if got, err := sandbox.ParseIssuer(in); got != strings.TrimPrefix(want, "-") || (err != nil) != (want == "-") {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
}
