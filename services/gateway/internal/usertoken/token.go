// Package usertoken makes and checks the tokens of users: JWTs that a user gets for a code, and
// that are valid for a short time. It does no I/O.
//
// # Algorithm
// Tokens are signed with HMAC-SHA256, and no other algorithm is accepted: only gateways check
// them, so that no public key is needed.
//
// # Keys
// Keys are numbered and sealed in the log. The newest one signs. The one before stays valid for
// as long as its tokens are.
package usertoken

import (
	"crypto/rand"
	"strconv"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/millrace/millrace/events/account"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/seal"
)

const (
	// Lifetime is how long a token is valid.
	Lifetime = time.Hour
	// RotateAfter is the age at which a key is replaced.
	RotateAfter = 30 * 24 * time.Hour

	algorithm = jose.HS256
	audience  = "account" // apart from the tokens of conversations
	keyBytes  = 32
	maxToken  = 4 << 10 // of a token that is parsed
)

// NewKey returns a new random key.
func NewKey() []byte {
	raw := make([]byte, keyBytes)
	rand.Read(raw)
	return raw
}

// claims are the claims of a token.
type claims struct {
	Audience string `json:"aud"`
	Subject  string `json:"sub"`
	UserID   string `json:"user_id"`
	Issued   int64  `json:"iat"`
	Expires  int64  `json:"exp"`
}

// Ring caches opened keys. Its methods may be called concurrently. Use NewRing to create one.
type Ring struct {
	sealer *seal.Ring
	mu     sync.Mutex
	opened map[uint32][]byte
}

// NewRing returns a ring whose keys are sealed by s.
func NewRing(s *seal.Ring) *Ring { return &Ring{sealer: s, opened: make(map[uint32][]byte)} }

// Opens returns an error if a key cannot be opened.
func (r *Ring) Opens(k *account.TokenKey) error {
	_, err := r.open(k)
	return err
}

func (r *Ring) open(k *account.TokenKey) ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if raw, ok := r.opened[k.Number]; ok {
		return raw, nil
	}
	raw, err := r.sealer.Open(k.Place(), k.Sealed)
	if err == nil {
		r.opened[k.Number] = []byte(raw)
	}
	return []byte(raw), err
}

// Signer returns the key that signs at now. ok is false if a new one must be made first. keys is
// sorted, oldest first.
func Signer(keys []account.TokenKey, now time.Time) (k account.TokenKey, ok bool) {
	if len(keys) == 0 {
		return k, false
	}
	k = keys[len(keys)-1]
	return k, now.Sub(k.Made) < RotateAfter
}

// Sign returns a token for a tenant, signed with k.
func (r *Ring) Sign(k *account.TokenKey, tenant string, now time.Time) (string, error) {
	key, err := r.open(k)
	if err != nil {
		return "", err
	}
	options := (&jose.SignerOptions{}).WithType("JWT").WithHeader("kid", strconv.FormatUint(uint64(k.Number), 10))
	by, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key}, options)
	if err != nil {
		return "", kind.Wrap(kind.Internal, "sign token", tenant, err)
	}
	token, err := jwt.Signed(by).Claims(claims{
		Audience: audience, Subject: tenant, UserID: tenant, Issued: now.Unix(), Expires: now.Add(Lifetime).Unix(),
	}).Serialize()
	return token, kind.Wrap(kind.Internal, "sign token", tenant, err)
}

// parsed is a token whose signature has not been checked.
type parsed struct {
	jwt    *jwt.JSONWebToken
	number uint32
}

// parse reads a token. Its header selects one of the numbered keys and nothing else.
func parse(token string) (p parsed, ok bool) {
	if len(token) > maxToken {
		return p, false
	}
	t, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{algorithm})
	if err != nil || len(t.Headers) != 1 {
		return p, false
	}
	id := t.Headers[0].KeyID
	n, err := strconv.ParseUint(id, 10, 32)
	if err != nil || strconv.FormatUint(n, 10) != id {
		return p, false
	}
	return parsed{t, uint32(n)}, true
}

// Number returns the number of the key that a token claims to be signed with; 0 for a text that
// is not a token.
func Number(token string) uint32 {
	p, _ := parse(token)
	return p.number
}

// Check returns the tenant of a valid token. keys is sorted, oldest first.
func (r *Ring) Check(keys []account.TokenKey, token string, now time.Time) (tenant string, ok bool) {
	p, ok := parse(token)
	if !ok {
		return "", false
	}
	for i := range keys {
		if keys[i].Number != p.number || i+1 < len(keys) && now.Sub(keys[i+1].Made) > Lifetime {
			continue
		}
		key, err := r.open(&keys[i])
		if err != nil {
			return "", false
		}
		var c claims
		if err := p.jwt.Claims(key, &c); err != nil {
			return "", false
		}
		valid := c.Audience == audience && c.Subject != "" && c.UserID == c.Subject && now.Unix() < c.Expires && c.Expires <= now.Add(2*Lifetime).Unix()
		return c.Subject, valid
	}
	return "", false
}
