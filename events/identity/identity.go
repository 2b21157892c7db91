// Package identity makes the tokens by which sandboxes are known to others, and the
// keys with which these are signed and checked. It does no I/O.
//
// # Tokens
// A token is a JWT, signed with RS256, which all who check tokens know; it is a
// JWT-SVID of SPIFFE as well: its subject is
// spiffe://<issuer's host>/team/<team>/template/<template>/sandbox/<sandbox>. It is
// good for Lifetime, and there is one for each request.
//
// # Keys
// All gateways and hosts know the same keys. A new one is shown for Ahead before
// anything is signed with it, and one that was replaced as long as what it signed is
// good: who keeps the keys for no longer than Fresh meets none that he does not know.
package identity

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"net/url"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
)

const (
	// Lifetime is how long a token is good.
	Lifetime = 5 * time.Minute
	// Fresh is how long who checks tokens may keep what he has read of the keys.
	Fresh = 5 * time.Minute
	// Ahead is how long a key is shown before it signs.
	Ahead = 2 * Fresh

	bits    = 2048
	leeway  = time.Minute // that clocks may differ
	jtiSize = 16
)

// Stored is a key as records have it.
type Stored struct {
	Number uint32 // from 1
	Made   time.Time
	Sealed sandbox.Sealed // PKCS #8
}

// NewKey makes a key, as PKCS #8.
func NewKey() ([]byte, error) {
	key, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		return nil, kind.Wrap(kind.Internal, "make signing key", "", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	return der, kind.Wrap(kind.Internal, "make signing key", "", err)
}

// key is one that was opened.
type key struct {
	made time.Time
	jwk  jose.JSONWebKey
}

func open(made time.Time, der []byte) (key, error) {
	private, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return key{}, kind.Wrap(kind.Internal, "open signing key", "", err)
	}
	jwk := jose.JSONWebKey{Key: private, Algorithm: string(jose.RS256), Use: "sig"}
	id, err := jwk.Thumbprint(hash)
	if err != nil {
		return key{}, kind.Wrap(kind.Internal, "open signing key", "", err)
	}
	jwk.KeyID = encode(id)
	return key{made, jwk}, nil
}

// signer is the one of keys, the oldest first, that signs now; ok is false without
// any.
func signer(keys []key, now time.Time) (k key, ok bool) {
	for i := range keys {
		if i == 0 || !keys[i].made.Add(Ahead).After(now) {
			k, ok = keys[i], true
		}
	}
	return k, ok
}

// shown are those of keys, the oldest first, with which something may be signed that
// is still good, or soon will be.
func shown(keys []key, now time.Time) []key {
	for len(keys) > 1 && keys[1].made.Add(Ahead+Lifetime+leeway).Before(now) {
		keys = keys[1:]
	}
	return keys
}

// Subject is whom a token is about.
type Subject struct {
	Issuer, Team, Template, Sandbox string
}

// claims are what a token says.
type claims struct {
	Issuer   string `json:"iss"`
	Subject  string `json:"sub"`
	Audience string `json:"aud"`
	IssuedAt int64  `json:"iat"`
	Expires  int64  `json:"exp"`
	ID       string `json:"jti"`
	Team     string `json:"team_id"`
	Template string `json:"template_id"`
	Sandbox  string `json:"sandbox_id"`
}

func (k *key) sign(s *Subject, audience string, now time.Time) (string, error) {
	by, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: k.jwk}, (&jose.SignerOptions{}).WithType("JWT"))
	if err != nil {
		return "", kind.Wrap(kind.Internal, "sign token", s.Sandbox, err)
	}
	id := make([]byte, jtiSize)
	rand.Read(id) //nolint:errcheck // crypto/rand.Read never fails since Go 1.24
	token, err := jwt.Signed(by).Claims(claims{
		Issuer: s.Issuer, Subject: s.spiffe(), Audience: audience, IssuedAt: now.Unix(), Expires: now.Add(Lifetime).Unix(), ID: encode(id),
		Team: s.Team, Template: s.Template, Sandbox: s.Sandbox,
	}).Serialize()
	return token, kind.Wrap(kind.Internal, "sign token", s.Sandbox, err)
}

// spiffe is the subject as SPIFFE has it: of the issuer's host, as far as the name of
// a trust domain may be like that.
func (s *Subject) spiffe() string {
	host := ""
	if u, err := url.Parse(s.Issuer); err == nil {
		host = strings.ToLower(strings.ReplaceAll(u.Hostname(), ":", "-"))
	}
	return "spiffe://" + host + "/team/" + s.Team + "/template/" + s.Template + "/sandbox/" + s.Sandbox
}
