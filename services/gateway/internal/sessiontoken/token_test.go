package sessiontoken

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"hash"
	"strings"
	"testing"
	"time"
)

var now = time.Unix(1_800_000_000, 0)

func encode(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }

// forged returns a token with any header and claims.
func forged(key []byte, by func() hash.Hash, header, body string) string {
	text := encode(header) + "." + encode(body)
	mac := hmac.New(by, key)
	mac.Write([]byte(text))
	return text + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// E-165, E-193: what is rejected.
func TestCheck(t *testing.T) {
	s := New(func(text string) string { return text + " of thirty-two bytes" })
	c := Claims{Tenant: "t", User: "t", App: "a", Set: "s", Session: "ses_1", Issued: now.Unix(), Expires: now.Unix() + 60, ID: "n"}
	good, err := s.Client(c)
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := s.Client(c); again != good {
		t.Error("two tokens with the same claims differ")
	}
	if got, ok := s.Check(good, now); !ok || got.Session != "ses_1" || got.Tenant != "t" {
		t.Fatalf("%+v, %v", got, ok)
	}
	const header, body = `{"alg":"HS256","typ":"JWT"}`, `{"aud":"session","tenant_id":"t","chat_session_id":"ses_1","exp":1800000060}`
	if _, ok := s.Check(forged(s.client, sha256.New, header, body), now); !ok {
		t.Fatal("the forged tokens below are rejected for their form")
	}
	internal, err := s.Runtime(c, now)
	if err != nil {
		t.Fatal(err)
	}
	part := strings.Split(good, ".")
	for name, token := range map[string]string{
		"nothing":           "",
		"no token":          "x.y.z",
		"no algorithm":      encode(`{"alg":"none"}`) + "." + part[1] + ".",
		"HS512":             forged(s.client, sha512.New, `{"alg":"HS512"}`, body),
		"HS512 by name":     forged(s.client, sha256.New, `{"alg":"HS512"}`, body),
		"another key":       forged([]byte("another key of thirty-two bytes!"), sha256.New, header, body),
		"a runtime's":       internal,
		"of a runtime":      forged(s.client, sha256.New, header, strings.Replace(body, `"session"`, `"runtime"`, 1)),
		"a changed claim":   part[0] + "." + encode(strings.Replace(body, "ses_1", "ses_2", 1)) + "." + part[2],
		"expired":           forged(s.client, sha256.New, header, strings.Replace(body, "1800000060", "1800000000", 1)),
		"no end":            forged(s.client, sha256.New, header, strings.Replace(body, `,"exp":1800000060`, "", 1)),
		"no session":        forged(s.client, sha256.New, header, strings.Replace(body, "ses_1", "", 1)),
		"a longer one":      good + strings.Repeat("A", maxToken),
		"an API key":        "e2a_0011",
		"a missing end":     part[0] + "." + part[1],
		"another signature": part[0] + "." + part[1] + "." + part[1],
	} {
		if c, ok := s.Check(token, now); ok {
			t.Errorf("%s: accepted for %q", name, c.Session)
		}
	}
}
