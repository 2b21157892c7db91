package identity

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/seal"
	"github.com/millrace/millrace/events/seal/sealtest"
)

// stored seals a new key.
func stored(t *testing.T, s *seal.Ring, n uint32, made time.Time) Stored {
	t.Helper()
	der, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	return Stored{Number: n, Made: made, Sealed: sealtest.Seal(t, s, Place(n), string(der))}
}

// claimsOf decodes a token's claims into all, verified with the key set published at that
// time.
func claimsOf(t *testing.T, r *Ring, stored []Stored, token string, now time.Time, all ...any) error {
	t.Helper()
	raw, err := r.JWKS(stored, now)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(raw), `"d":`) || strings.Contains(string(raw), `"p":`) {
		t.Fatalf("the private key is published: %s", raw)
	}
	var set jose.JSONWebKeySet
	if err := json.Unmarshal(raw, &set); err != nil {
		t.Fatal(err)
	}
	parsed, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.RS256})
	if err != nil {
		t.Fatal(err)
	}
	return parsed.Claims(&set, all...)
}

// check verifies a token as its receiver does.
func check(t *testing.T, r *Ring, all []Stored, token, audience string, now time.Time) (claims, error) {
	t.Helper()
	var c claims
	var std jwt.Claims
	if err := claimsOf(t, r, all, token, now, &c, &std); err != nil {
		return c, err
	}
	return c, std.ValidateWithLeeway(jwt.Expected{AnyAudience: jwt.Audience{audience}, Time: now}, 0)
}

var about = Subject{Issuer: "https://Id.example.com:8443/x", Team: "default", Template: "base", Sandbox: "i1"}

func TestATokenIdentifiesTheSandbox(t *testing.T) {
	s, now := sealtest.Ring(t), time.Now()
	r, all := NewRing(s), []Stored{stored(t, s, 1, now)}
	one, err := r.Token(all, &about, "sts.amazonaws.com", now)
	if err != nil {
		t.Fatal(err)
	}
	c, err := check(t, r, all, one, "sts.amazonaws.com", now)
	want := claims{
		Issuer: about.Issuer, Subject: "spiffe://id.example.com/team/default/template/base/sandbox/i1", Audience: "sts.amazonaws.com",
		IssuedAt: now.Unix(), Expires: now.Add(Lifetime).Unix(), ID: c.ID, Team: "default", Template: "base", Sandbox: "i1",
	}
	if err != nil || c != want || c.ID == "" {
		t.Errorf("%+v, want %+v, %v", c, want, err)
	}
	if _, err := check(t, r, all, one, "another", now); err == nil {
		t.Error("it is valid for another audience")
	}
	if _, err := check(t, r, all, one, "sts.amazonaws.com", now.Add(Lifetime+time.Second)); err == nil {
		t.Error("it does not expire")
	}
	if _, err := check(t, r, []Stored{stored(t, s, 2, now)}, one, "sts.amazonaws.com", now); err == nil {
		t.Error("another key verifies it")
	}
	two, err := r.Token(all, &about, "sts.amazonaws.com", now)
	if d, err2 := check(t, r, all, two, "sts.amazonaws.com", now); err != nil || err2 != nil || d.ID == c.ID {
		t.Errorf("two tokens have one id: %v %v", err, err2)
	}
	if _, err := r.Token(nil, &about, "x", now); !kind.Is(err, kind.Unavailable) {
		t.Errorf("without a key: %v", err)
	}
	if _, err := NewRing(s).Token([]Stored{{Number: 1, Sealed: "damaged"}}, &about, "x", now); !kind.Is(err, kind.Internal) {
		t.Errorf("with a damaged key: %v", err)
	}
}

// While keys change, a verifier with a key set of the maximum age has the key of each valid
// token.
func TestCachedKeysVerifyTokensDuringRotation(t *testing.T) {
	s, begin := sealtest.Ring(t), time.Now()
	all := []Stored{stored(t, s, 1, begin), stored(t, s, 2, begin.Add(time.Hour)), stored(t, s, 3, begin.Add(time.Hour+time.Minute))}
	r := NewRing(s)
	known := func(now time.Time) (had []Stored) {
		for _, k := range all {
			if !k.Made.After(now) {
				had = append(had, k)
			}
		}
		return had
	}
	for at := time.Duration(0); at < 2*time.Hour; at += time.Minute {
		signed := begin.Add(at)
		token, err := r.Token(known(signed), &about, "x", signed)
		if err != nil {
			t.Fatal(err)
		}
		for _, read := range []time.Duration{-Fresh, 0, Lifetime} { // when the keys were read
			when := signed.Add(read)
			if when.Before(begin) {
				continue
			}
			if err := claimsOf(t, r, known(when), token, when); err != nil {
				t.Errorf("signed at %s, keys read %s later: %v", at, read, err)
			}
		}
	}
	keys, err := r.keys(all)
	if err != nil {
		t.Fatal(err)
	}
	if last := published(keys, begin.Add(2*time.Hour)); len(last) != 1 || last[0].jwk.KeyID != keys[2].jwk.KeyID {
		t.Errorf("%d keys are shown at the end", len(last))
	}
}

func BenchmarkToken(b *testing.B) {
	s := sealtest.Ring(b)
	der, err := NewKey()
	if err != nil {
		b.Fatal(err)
	}
	r, all := NewRing(s), []Stored{{Number: 1, Sealed: sealtest.Seal(b, s, Place(1), string(der))}}
	for b.Loop() {
		if _, err := r.Token(all, &about, "x", time.Now()); err != nil {
			b.Fatal(err)
		}
	}
}
