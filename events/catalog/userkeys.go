package catalog

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/internal/codec"
	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/kind"
	pb "github.com/millrace/millrace/schema/event/v1"
)

// Forms of e2a's keys. Each key fits into the 72 bytes that bcrypt takes.
const (
	userPrefix = "e2a_"
	livePrefix = "e2a_live_"

	userKeyBytes = 32
	liveKeyBytes = 20

	userHint = len(userPrefix) + 4 // characters of a key that are shown
	liveHint = len(livePrefix) + 3
)

// NewUserKey returns a new random key in the form of e2a's tenants.
func NewUserKey() string { return newKey(userPrefix, userKeyBytes) }

// NewLiveKey returns a new random key in the form of e2a's account page.
func NewLiveKey() string { return newKey(livePrefix, liveKeyBytes) }

func newKey(prefix string, size int) string {
	raw := make([]byte, size)
	rand.Read(raw)
	return prefix + hex.EncodeToString(raw)
}

// IsUserKey reports whether a key has one of e2a's forms. Their slow hashes are stored.
func IsUserKey(key string) bool {
	digits, ok := strings.CutPrefix(key, livePrefix)
	size := liveKeyBytes
	if !ok {
		digits, ok = strings.CutPrefix(key, userPrefix)
		size = userKeyBytes
	}
	return ok && len(digits) == 2*size && strings.Trim(digits, "0123456789abcdef") == ""
}

// UserKeyOf returns the log's entry for a key in one of e2a's forms.
func UserKeyOf(tenant, key string, now time.Time) Key {
	k := KeyOf(tenant, key, now)
	if strings.HasPrefix(key, livePrefix) {
		k.Hint = key[:liveHint]
	} else {
		k.Hint = key[:userHint]
	}
	return k
}

// PutKeyHash stores the slow hash of an API key, if none is stored.
func (d *Documents) PutKeyHash(ctx context.Context, tenant, key string, bcrypt []byte) error {
	sum := sha256.Sum256([]byte(key))
	data, err := proto.Marshal(&pb.AccountEvent{TimeNs: codec.Nanos(time.Now()), Body: &pb.AccountEvent_KeyHashed{
		KeyHashed: &pb.KeyHashed{Sha256: sum[:], Bcrypt: bcrypt},
	}})
	if err != nil {
		return kind.Wrap(kind.Internal, "store key hash", keyID(sum), err)
	}
	_, err = d.conn.Put(ctx, streams.Accounts, "acct."+tenant+".keyhash."+keyID(sum), 0, data)
	if kind.Is(err, kind.Conflict) {
		return nil
	}
	return err
}

// applyHashed marks a key. The view is locked.
func (a *accountTable) applyHashed(e *pb.KeyHashed) {
	var sum [sha256.Size]byte
	if copy(sum[:], e.Sha256) != len(sum) {
		return
	}
	if k, ok := a.keys.Docs[sum]; ok {
		k.Hashed = true
		a.keys.Set(k)
	}
}

// SyncAccounts is [View.Sync] for the accounts of a view alone.
func SyncAccounts(ctx context.Context, v *View) error {
	return v.progress.Sync(ctx, streams.Accounts)
}
