package usertoken

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/millrace/millrace/events/account"
	"github.com/millrace/millrace/events/seal"
)

var now = time.Unix(1_800_000_000, 0)

func ringWith(t testing.TB, made ...time.Time) (*Ring, []account.TokenKey) {
	t.Helper()
	m, err := seal.ParseMaster(seal.NewMaster())
	if err != nil {
		t.Fatal(err)
	}
	s, err := seal.NewSet(m).Ring(m)
	if err != nil {
		t.Fatal(err)
	}
	var keys []account.TokenKey
	for i, at := range made {
		k := account.TokenKey{Number: uint32(i + 1), Made: at}
		if k.Sealed, err = s.Seal(k.Place(), string(NewKey())); err != nil {
			t.Fatal(err)
		}
		keys = append(keys, k)
	}
	return NewRing(s), keys
}

func encode(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }

// signed returns a token with any header and claims, signed with the key by HMAC-SHA256.
func signed(key []byte, header, body string) string {
	text := encode(header) + "." + encode(body)
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text))
	return text + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

func TestTokensThatAreRejected(t *testing.T) {
	r, keys := ringWith(t, now)
	good, err := r.Sign(&keys[0], "usr_1", now)
	if err != nil {
		t.Fatal(err)
	}
	if tenant, ok := r.Check(keys, good, now); tenant != "usr_1" || !ok {
		t.Fatalf("%q, %v", tenant, ok)
	}
	key, err := r.open(&keys[0])
	if err != nil {
		t.Fatal(err)
	}
	part := strings.Split(good, ".")
	const header, body = `{"alg":"HS256","kid":"1","typ":"JWT"}`, `{"aud":"account","sub":"usr_1","user_id":"usr_1","iat":1800000000,"exp":1800003600}`
	if _, ok := r.Check(keys, signed(key, header, body), now); !ok {
		t.Fatal("the forged tokens below are rejected for their form")
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	es, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: crypto.PrivateKey(private), KeyID: "1"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	other, err := jwt.Signed(es).Claims(claims{Audience: audience, Subject: "usr_1", UserID: "usr_1", Expires: now.Unix() + 60}).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	for name, token := range map[string]string{
		"nothing":                "",
		"no token":               "x.y.z",
		"no algorithm":           encode(`{"alg":"none","kid":"1"}`) + "." + part[1] + ".",
		"no signature":           part[0] + "." + part[1] + ".",
		"two parts":              part[0] + "." + part[1],
		"another algorithm":      other,
		"HS384 by name":          signed(key, `{"alg":"HS384","kid":"1"}`, body),
		"RS256 by name":          signed(key, `{"alg":"RS256","kid":"1"}`, body),
		"another key":            signed([]byte("another key of thirty-two bytes!"), header, body),
		"an unknown key":         signed(key, `{"alg":"HS256","kid":"2"}`, body),
		"a path as key":          signed(key, `{"alg":"HS256","kid":"../../dev/null"}`, body),
		"a padded number":        signed(key, `{"alg":"HS256","kid":"01"}`, body),
		"no key":                 signed(key, `{"alg":"HS256"}`, body),
		"its own key":            signed([]byte("k"), `{"alg":"HS256","kid":"1","jwk":{"kty":"oct","k":"aw"}}`, body),
		"an unknown extension":   signed(key, `{"alg":"HS256","kid":"1","crit":["x"],"x":1}`, body),
		"a changed claim":        part[0] + "." + encode(strings.ReplaceAll(body, "usr_1", "usr_2")) + "." + part[2],
		"no end":                 signed(key, header, `{"aud":"account","sub":"usr_1","user_id":"usr_1"}`),
		"an end as text":         signed(key, header, `{"aud":"account","sub":"usr_1","user_id":"usr_1","exp":"9999999999"}`),
		"an end with a fraction": signed(key, header, `{"aud":"account","sub":"usr_1","user_id":"usr_1","exp":1800003600.5}`),
		"an end far away":        signed(key, header, `{"aud":"account","sub":"usr_1","user_id":"usr_1","exp":9999999999}`),
		"an end that overflows":  signed(key, header, `{"aud":"account","sub":"usr_1","user_id":"usr_1","exp":1e999}`),
		"another audience":       signed(key, header, strings.Replace(body, "account", "session", 1)),
		"no user":                signed(key, header, `{"aud":"account","sub":"","user_id":"","exp":1800003600}`),
		"a longer one":           good + strings.Repeat("A", maxToken),
	} {
		if tenant, ok := r.Check(keys, token, now); ok {
			t.Errorf("%s: accepted for %q", name, tenant)
		}
	}
	for after, want := range map[time.Duration]bool{0: true, Lifetime - time.Second: true, Lifetime: false} {
		if _, ok := r.Check(keys, good, now.Add(after)); ok != want {
			t.Errorf("after %v: %v", after, ok)
		}
	}
}

// A replaced key is valid for as long as its tokens are, and is replaced in time.
func TestRotation(t *testing.T) {
	r, keys := ringWith(t, now, now.Add(RotateAfter))
	if _, ok := Signer(nil, now); ok {
		t.Error("no key signs")
	}
	if k, ok := Signer(keys[:1], now.Add(RotateAfter-1)); !ok || k.Number != 1 {
		t.Error("a young key does not sign")
	}
	if _, ok := Signer(keys[:1], now.Add(RotateAfter)); ok {
		t.Error("an old key signs")
	}
	replaced := now.Add(RotateAfter)
	token, err := r.Sign(&keys[0], "usr_1", replaced)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := r.Check(keys, token, replaced.Add(Lifetime-time.Second)); !ok {
		t.Error("a token of a replaced key is rejected before its end")
	}
	late, err := r.Sign(&keys[0], "usr_1", replaced.Add(Lifetime))
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := r.Check(keys, late, replaced.Add(Lifetime+time.Second)); ok {
		t.Error("a key that was replaced long ago signs valid tokens")
	}
	if Number(token) != 1 || Number("x") != 0 {
		t.Error("the number of a key")
	}
}

// No text but our own tokens is accepted.
func FuzzCheck(f *testing.F) {
	r, keys := ringWith(f, now)
	good, err := r.Sign(&keys[0], "usr_1", now)
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range []string{good, "a.b.c", `{"payload":"","signatures":[]}`, ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if tenant, ok := r.Check(keys, s, now); ok && tenant != "usr_1" {
			t.Errorf("%q is valid for %q", s, tenant)
		}
	})
}

func BenchmarkCheck(b *testing.B) {
	r, keys := ringWith(b, now)
	token, err := r.Sign(&keys[0], "usr_1", now)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, ok := r.Check(keys, token, now); !ok {
			b.Fatal("rejected")
		}
	}
}
