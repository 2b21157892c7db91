package events

import (
	"context"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/identity"
	"github.com/millrace/millrace/events/internal/codec"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	pb "github.com/millrace/millrace/schema/event/v1"
)

// PutSigningKey stores a signing key of the cluster, with the number after the last key's.
// It returns Conflict if a key with that number exists, because another service was first.
func (l *Log) PutSigningKey(ctx context.Context, number uint32, sealed sandbox.Sealed) error {
	data, err := proto.Marshal(&pb.AccountEvent{TimeNs: codec.Nanos(time.Now()), Body: &pb.AccountEvent_SigningKeyMade{
		SigningKeyMade: &pb.SigningKeyMade{Number: number, Sealed: []byte(sealed)},
	}})
	if err != nil {
		return kind.Wrap(kind.Internal, "put signing key", "", err)
	}
	_, err = l.put(ctx, streamAccounts, "acct.cluster.signer."+strconv.FormatUint(uint64(number), 10), 0, data)
	return err
}

func (v *View) applySigningKey(at time.Time, e *pb.SigningKeyMade) {
	v.signing = append(v.signing, identity.Stored{Number: e.Number, Made: at, Sealed: sandbox.Sealed(e.Sealed)})
}

// SigningKeys returns the cluster's keys for signing tokens, oldest first.
func (v *View) SigningKeys() []identity.Stored {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.signing)
}
