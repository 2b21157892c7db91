package directory

import (
	"cmp"
	"context"
	"crypto/rand"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/account"
	"github.com/millrace/millrace/events/internal/codec"
	"github.com/millrace/millrace/events/internal/fold"
	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/seal"
	pb "github.com/millrace/millrace/schema/event/v1"
)

const (
	accountPrefix = "user.account."
	sourcePrefix  = "user.source."
	keyPrefix     = "user.tokenkey."

	markBytes = 12 // of the random mark of a message
)

// accountDocs is how a view holds accounts.
var accountDocs = &fold.Document[account.ID, account.State]{
	Name: "account", Stream: streams.Users,
	Key:     func(a *account.State) account.ID { return a.Address.ID() },
	Compare: func(a, b account.State) int { return strings.Compare(string(a.Address), string(b.Address)) },
}

// sourceDocs is how a view holds sources.
var sourceDocs = &fold.Document[string, account.Source]{
	Name: "source", Stream: streams.Users,
	Key:     func(x *account.Source) string { return x.ID },
	Compare: func(a, b account.Source) int { return strings.Compare(a.ID, b.ID) },
	Decode:  decodeSource,
}

// keyDocs is how keys of tokens are stored. They are never replaced.
var keyDocs = &fold.Document[uint32, account.TokenKey]{
	Name: "token key", Stream: streams.Users,
	Subject: func(k *account.TokenKey) string { return keyPrefix + strconv.FormatUint(uint64(k.Number), 10) },
	Key:     func(k *account.TokenKey) uint32 { return k.Number },
	Compare: func(a, b account.TokenKey) int { return cmp.Compare(a.Number, b.Number) },
	Encode: func(k *account.TokenKey) proto.Message {
		return &pb.UserTokenKey{Number: k.Number, MadeNs: codec.Nanos(k.Made), Sealed: []byte(k.Sealed)}
	},
	Decode: func(m store.Message) (account.TokenKey, error) {
		var b pb.UserTokenKey
		err := proto.Unmarshal(m.Data, &b)
		return account.TokenKey{Number: b.Number, Made: codec.Time(b.MadeNs), Sealed: seal.Text(b.Sealed)}, err
	},
}

func accountSubject(a account.Address) string { return accountPrefix + string(a.ID()) }

func encodeAccount(a *account.State, b account.Body) proto.Message {
	m := &pb.UserAccount{Address: string(a.Address), Tenant: a.Tenant, CreatedNs: codec.Nanos(a.Created), SentNs: allNanos(a.Sent), Attempt: mark(), Event: b.Kind()}
	if a.Phase() == account.Waiting {
		m.Nonce, m.Hash, m.CodeNs, m.Wrong = a.Code.Nonce, a.Code.Hash, codec.Nanos(a.Code.Sent), uint32(a.Code.Wrong)
	}
	return m
}

func decodeAccount(m store.Message) (account.State, error) {
	var b pb.UserAccount
	err := proto.Unmarshal(m.Data, &b)
	a := account.State{
		Address: account.Address(b.Address), Tenant: b.Tenant, Created: codec.Time(b.CreatedNs), Sent: allTimes(b.SentNs), Rev: m.Seq, Changed: m.Time,
	}
	if b.Hash != "" {
		a.Code = account.Code{Nonce: b.Nonce, Hash: b.Hash, Sent: codec.Time(b.CodeNs), Wrong: int(b.Wrong)}
	}
	return a, err
}

func encodeSource(x *account.Source) proto.Message {
	return &pb.UserSource{RequestsNs: allNanos(x.Requests), Attempt: mark()}
}

func decodeSource(m store.Message) (account.Source, error) {
	var b pb.UserSource
	err := proto.Unmarshal(m.Data, &b)
	return account.Source{ID: strings.TrimPrefix(m.Subject, sourcePrefix), Requests: allTimes(b.RequestsNs), Rev: m.Seq, Changed: m.Time}, err
}

// put stores a message after the one with stream sequence rev.
func (s *Store) put(ctx context.Context, subject string, rev uint64, m proto.Message) (uint64, error) {
	data, err := proto.Marshal(m)
	if err != nil {
		return 0, kind.Wrap(kind.Internal, "append", subject, err)
	}
	return s.conn.Put(ctx, streams.Users, subject, rev, data)
}

func mark() []byte {
	raw := make([]byte, markBytes)
	rand.Read(raw)
	return raw
}

func allNanos(all []time.Time) []int64 {
	out := make([]int64, len(all))
	for i, t := range all {
		out[i] = codec.Nanos(t)
	}
	return out
}

func allTimes(all []int64) []time.Time {
	out := make([]time.Time, len(all))
	for i, ns := range all {
		out[i] = codec.Time(ns)
	}
	return out
}
