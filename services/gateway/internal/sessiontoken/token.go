// Package sessiontoken makes and checks the tokens of conversations. It does no I/O.
//
// # Tokens
// The token of a client is valid for one conversation, as long as its sandbox. It is signed from
// values that are stored, so that every gateway makes the same bytes. The token of a runtime is made
// for each upgrade, is valid for a minute, and is never shown to a client.
//
// # Algorithm
// Tokens are signed with HMAC-SHA256, and no other algorithm is accepted. Both kinds have keys of their
// own, which are derived from the cluster's secret.
package sessiontoken

import (
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/millrace/millrace/events/kind"
)

const (
	// RuntimeLifetime is how long the token of a runtime is valid.
	RuntimeLifetime = time.Minute

	algorithm = jose.HS256
	client    = "session"
	runtime   = "runtime"
	maxToken  = 4 << 10 // of a token that is parsed
)

// Claims are the claims of a token.
type Claims struct {
	Audience string `json:"aud"`
	Tenant   string `json:"tenant_id"`
	User     string `json:"user_id"`
	App      string `json:"app_id"`
	Set      string `json:"set_id"`
	Session  string `json:"chat_session_id"` // of a runtime's token: of the upgrade
	Desktop  bool   `json:"cua_enabled"`
	Issued   int64  `json:"iat"`
	Expires  int64  `json:"exp"`
	ID       string `json:"jti"`
}

// Signer signs and checks tokens. Its methods may be called concurrently.
type Signer struct{ client, runtime []byte }

// New returns a signer. derive derives a key of the cluster from a text.
func New(derive func(text string) string) *Signer {
	return &Signer{client: []byte(derive("token of a conversation")), runtime: []byte(derive("token of a runtime"))}
}

// Client returns the token of a client with claims.
func (s *Signer) Client(c Claims) (string, error) {
	c.Audience = client
	return sign(s.client, &c)
}

// Runtime returns the token of a runtime with claims, of which it sets the times.
func (s *Signer) Runtime(c Claims, now time.Time) (string, error) {
	c.Audience, c.Issued, c.Expires = runtime, now.Unix(), now.Add(RuntimeLifetime).Unix()
	return sign(s.runtime, &c)
}

func sign(key []byte, c *Claims) (string, error) {
	by, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key}, (&jose.SignerOptions{}).WithType("JWT"))
	if err != nil {
		return "", kind.Wrap(kind.Internal, "sign token", c.Session, err)
	}
	token, err := jwt.Signed(by).Claims(c).Serialize()
	return token, kind.Wrap(kind.Internal, "sign token", c.Session, err)
}

// Check returns the claims of a client's valid token.
func (s *Signer) Check(token string, now time.Time) (Claims, bool) {
	var c Claims
	if len(token) > maxToken {
		return c, false
	}
	t, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{algorithm})
	if err != nil || t.Claims(s.client, &c) != nil {
		return Claims{}, false
	}
	return c, c.Audience == client && c.Session != "" && c.Tenant != "" && now.Unix() < c.Expires
}
