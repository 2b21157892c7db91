package catalog

import (
	"cmp"
	"context"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/identity"
	"github.com/millrace/millrace/events/internal/codec"
	"github.com/millrace/millrace/events/internal/fold"
	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/seal"
	pb "github.com/millrace/millrace/schema/event/v1"
)

// signingKeyDocs describes the cluster's keys for signing tokens, numbered from 1.
var signingKeyDocs = &fold.Document[uint32, identity.Stored]{
	Name: "signing key", Stream: streams.Accounts,
	Subject: func(s *identity.Stored) string {
		return "acct.cluster.signer." + strconv.FormatUint(uint64(s.Number), 10)
	},
	Key:     func(s *identity.Stored) uint32 { return s.Number },
	Compare: func(a, b identity.Stored) int { return cmp.Compare(a.Number, b.Number) },
	Encode: func(s *identity.Stored) proto.Message {
		return &pb.AccountEvent{TimeNs: codec.Nanos(time.Now()), Body: &pb.AccountEvent_SigningKeyMade{
			SigningKeyMade: &pb.SigningKeyMade{Number: s.Number, Sealed: []byte(s.Sealed)},
		}}
	},
}

// PutSigningKey stores a signing key of the cluster, with the number after the last key's.
// It returns Conflict if a key with that number exists, because another service was first.
func (d *Documents) PutSigningKey(ctx context.Context, number uint32, sealed seal.Text) error {
	_, err := signingKeyDocs.Put(ctx, d.conn, &identity.Stored{Number: number, Sealed: sealed})
	return err
}

// SigningKeys returns the cluster's keys for signing tokens, oldest first.
func (a *accountTable) SigningKeys() []identity.Stored {
	return a.signing.List(func(*identity.Stored) bool { return true })
}
