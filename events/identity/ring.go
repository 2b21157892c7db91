package identity

import (
	"crypto"
	_ "crypto/sha256" // hash
	"encoding/base64"
	"encoding/json"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/seal"
)

const hash = crypto.SHA256

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// Ring caches unsealed keys. Its methods may be called concurrently. Use NewRing to create
// one.
type Ring struct {
	sealer *seal.Ring
	mu     sync.Mutex
	opened map[uint32]key
}

// NewRing returns a Ring whose keys are sealed by s.
func NewRing(s *seal.Ring) *Ring { return &Ring{sealer: s, opened: make(map[uint32]key)} }

// keys returns the unsealed keys, in order.
func (r *Ring) keys(all []Stored) ([]key, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]key, len(all))
	for i, s := range all {
		k, ok := r.opened[s.Number]
		if !ok {
			der, err := r.sealer.Open(Place(s.Number), s.Sealed)
			if err != nil {
				return nil, err
			}
			if k, err = open(s.Made, []byte(der)); err != nil {
				return nil, err
			}
			r.opened[s.Number] = k
		}
		out[i] = k
	}
	return out, nil
}

// Token returns a token about s for an audience, signed with one of the keys in all, which
// is sorted, oldest first. It returns Unavailable if all is empty.
func (r *Ring) Token(all []Stored, s *Subject, audience string, now time.Time) (string, error) {
	keys, err := r.keys(all)
	if err != nil {
		return "", err
	}
	k, ok := signer(keys, now)
	if !ok {
		return "", kind.New(kind.Unavailable, "sign token", s.Sandbox, "no signing key exists")
	}
	return k.sign(s, audience, now)
}

// JWKS returns the published keys of all, as a JSON Web Key Set (RFC 7517). all is sorted,
// oldest first.
func (r *Ring) JWKS(all []Stored, now time.Time) ([]byte, error) {
	keys, err := r.keys(all)
	if err != nil {
		return nil, err
	}
	set := jose.JSONWebKeySet{Keys: []jose.JSONWebKey{}}
	for _, k := range published(keys, now) {
		set.Keys = append(set.Keys, k.jwk.Public())
	}
	raw, err := json.Marshal(set)
	return raw, kind.Wrap(kind.Internal, "show keys", "", err)
}
