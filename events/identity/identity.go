// Package identity makes the tokens by which sandboxes identify themselves to other
// services, and the keys that sign and verify them. It does no I/O.
//
// # Tokens
// A token is a JWT signed with RS256, which all verifiers support. It is also a JWT-SVID of
// SPIFFE: its subject is spiffe://<issuer's
// host>/team/<team>/template/<template>/sandbox/<sandbox>. It is valid for [Lifetime], and
// each request gets its own.
//
// # Keys
// All gateways and hosts have the same keys. A new key is published for [Ahead] before it
// signs, and a replaced one for as long as its signatures are valid: a verifier that caches
// the keys for at most [Fresh] never meets an unknown one.
package identity

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/seal"
)

const (
	// Lifetime is how long a token is valid.
	Lifetime = 5 * time.Minute
	// Fresh is how long a verifier may cache the keys.
	Fresh = 5 * time.Minute
	// Ahead is how long a key is published before it signs.
	Ahead = 2 * Fresh

	bits    = 2048
	leeway  = time.Minute // allowed difference between clocks
	jtiSize = 16
)

// Stored is a key in the log.
type Stored struct {
	Number uint32 // from 1
	Made   time.Time
	Sealed seal.Text // PKCS #8, see [Place]
}

// Place returns the place of the sealed key with a number.
func Place(number uint32) seal.Place {
	return seal.Place{Record: fmt.Sprintf("signing key %d", number), Field: "key"}
}

// NewKey returns a new key in PKCS #8.
func NewKey() ([]byte, error) {
	key, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		return nil, kind.Wrap(kind.Internal, "make signing key", "", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	return der, kind.Wrap(kind.Internal, "make signing key", "", err)
}

// key is an unsealed key.
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

// signer returns the key that signs at now; ok is false if keys is empty. keys is sorted,
// oldest first.
func signer(keys []key, now time.Time) (k key, ok bool) {
	for i := range keys {
		if i == 0 || !keys[i].made.Add(Ahead).After(now) {
			k, ok = keys[i], true
		}
	}
	return k, ok
}

// published returns the keys whose signatures are valid, now or soon. keys is sorted, oldest
// first.
func published(keys []key, now time.Time) []key {
	for len(keys) > 1 && keys[1].made.Add(Ahead+Lifetime+leeway).Before(now) {
		keys = keys[1:]
	}
	return keys
}

// Subject is the subject of a token.
type Subject struct {
	Issuer, Team, Template, Sandbox string
}

// claims are the claims of a token.
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
	rand.Read(id)
	token, err := jwt.Signed(by).Claims(claims{
		Issuer: s.Issuer, Subject: s.spiffe(), Audience: audience, IssuedAt: now.Unix(), Expires: now.Add(Lifetime).Unix(), ID: encode(id),
		Team: s.Team, Template: s.Template, Sandbox: s.Sandbox,
	}).Serialize()
	return token, kind.Wrap(kind.Internal, "sign token", s.Sandbox, err)
}

// spiffe returns the subject as a SPIFFE id. Its trust domain is the issuer's host, as far
// as the syntax allows.
func (s *Subject) spiffe() string {
	host := ""
	if u, err := url.Parse(s.Issuer); err == nil {
		host = strings.ToLower(strings.ReplaceAll(u.Hostname(), ":", "-"))
	}
	return "spiffe://" + host + "/team/" + s.Team + "/template/" + s.Template + "/sandbox/" + s.Sandbox
}
