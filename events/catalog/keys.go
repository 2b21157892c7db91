package catalog

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/internal/codec"
	"github.com/millrace/millrace/events/internal/fold"
	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/seal"
	pb "github.com/millrace/millrace/schema/event/v1"
)

// Key is an API key in the log, without the key itself, or a key pair.
type Key struct {
	ID      string // derived from its hash, so that the same key always has the same ID
	Tenant  string
	Name    string // for display; may be empty
	SHA256  [32]byte
	Hint    string // its first characters, for display
	Issued  time.Time
	Revoked bool
	Hashed  bool // the slow hash of the key is stored, too

	Access string    // access key of a pair, whose SHA256 is derived from it; empty: an API key
	Secret seal.Text // secret key of a pair
}

// Place returns the place of a pair's sealed secret key.
func (k *Key) Place() seal.Place {
	return seal.Place{Tenant: k.Tenant, Record: k.ID, Field: "secret key"}
}

const keyBytes = 20

// NewAPIKey returns a new random key, in the only format that E2B's older SDKs accept.
func NewAPIKey() string {
	raw := make([]byte, keyBytes)
	rand.Read(raw)
	return "e2b_" + hex.EncodeToString(raw)
}

const (
	accessPrefix = "AKIA"
	accessBytes  = 10
	secretBytes  = 30
)

// NewKeyPair returns a new random access key of 20 characters and secret key of 40, in the form of
// Backend.AI.
func NewKeyPair() (access, secret string) {
	raw := make([]byte, accessBytes+secretBytes)
	rand.Read(raw)
	return accessPrefix + base32.StdEncoding.EncodeToString(raw[:accessBytes]), base64.RawURLEncoding.EncodeToString(raw[accessBytes:])
}

// PairOf returns the log's entry for a key pair, without its secret key.
func PairOf(tenant, access string, now time.Time) Key {
	sum := pairSum(access)
	return Key{ID: keyID(sum), Tenant: tenant, SHA256: sum, Hint: access, Issued: now, Access: access}
}

// pairSum returns what a view finds a pair by.
func pairSum(access string) [32]byte { return sha256.Sum256([]byte("key pair\x00" + access)) }

// KeyOf returns the log's entry for an API key.
func KeyOf(tenant, key string, now time.Time) Key {
	sum := sha256.Sum256([]byte(key))
	hint := key
	if len(hint) > 8 {
		hint = hint[:8]
	}
	if len(key) < 2*len(hint) {
		hint = "" // the rest of a short key would be easy to guess
	}
	return Key{ID: keyID(sum), Tenant: tenant, SHA256: sum, Hint: hint, Issued: now}
}

func keyID(sum [32]byte) string { return hex.EncodeToString(sum[:8]) }

// keyDocs describes API keys. A view finds them by their hash.
var keyDocs = &fold.Document[[32]byte, Key]{
	Name: "key", Stream: streams.Accounts,
	Subject: func(k *Key) string { return "acct." + k.Tenant + ".key." + k.ID },
	Key:     func(k *Key) [32]byte { return k.SHA256 },
	Compare: func(a, b Key) int { return a.Issued.Compare(b.Issued) },
	Encode: func(k *Key) proto.Message {
		return &pb.AccountEvent{TimeNs: codec.Nanos(time.Now()), Body: &pb.AccountEvent_KeyIssued{
			KeyIssued: &pb.KeyIssued{Id: k.ID, Sha256: k.SHA256[:], Hint: k.Hint, Name: k.Name, Access: k.Access, Sealed: []byte(k.Secret)},
		}}
	},
}

// IssueKey stores a key. It leaves a key alone that exists or was revoked.
func (d *Documents) IssueKey(ctx context.Context, k Key) error {
	k.ID = keyID(k.SHA256)
	_, err := keyDocs.Put(ctx, d.conn, &k)
	if kind.Is(err, kind.Conflict) {
		return nil
	}
	return err
}

// revocationsSubject returns the subject of the record of all revocations of a tenant's
// keys.
func revocationsSubject(tenant string) string { return "acct." + tenant + ".revocations" }

// RevocationsRev returns the stream sequence of the last revocation of a tenant's key in
// the view; 0: none. Later reads from the view are at least as new.
func (a *accountTable) RevocationsRev(tenant string) uint64 {
	a.progress.Lock()
	defer a.progress.Unlock()
	return a.revoked[tenant]
}

// RevokeKey revokes a key for ever, if no key of the tenant was revoked since revision rev:
// two callers cannot revoke each other's keys. Keys issued meanwhile do not matter. It
// retries through outages until ctx ends and returns Conflict if another key was revoked.
// Gateways reject the key as soon as they have read the revocation.
func (d *Documents) RevokeKey(ctx context.Context, tenant, id string, rev uint64) error {
	data, err := proto.Marshal(&pb.AccountEvent{TimeNs: codec.Nanos(time.Now()), Body: &pb.AccountEvent_KeyRevoked{
		KeyRevoked: &pb.KeyRevoked{Id: id},
	}})
	if err != nil {
		return kind.Wrap(kind.Internal, "revoke key", id, err)
	}
	_, err = d.conn.Put(ctx, streams.Accounts, revocationsSubject(tenant), rev, data)
	return err
}

// Key returns the key with that hash, if it is valid and not a pair.
func (a *accountTable) Key(sha256 [32]byte) (Key, bool) {
	k, ok := a.keys.Get(sha256)
	return k, ok && !k.Revoked && k.Access == ""
}

// KeyPair returns the pair with that access key, if it is valid.
func (a *accountTable) KeyPair(access string) (Key, bool) {
	k, ok := a.keys.Get(pairSum(access))
	return k, ok && !k.Revoked && access != "" && k.Access == access
}

// Keys returns all keys and pairs of a tenant ("": of all), including revoked ones.
func (a *accountTable) Keys(tenant string) []Key {
	return a.keys.List(func(k *Key) bool { return tenant == "" || k.Tenant == tenant })
}
