package reseal

import (
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/account"
	"github.com/millrace/millrace/events/bundle"
	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/identity"
	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/seal"
	"github.com/millrace/millrace/events/webhook"
	pb "github.com/millrace/millrace/schema/event/v1"
)

// kindOf is a kind of document with a sealed value.
type kindOf struct {
	stream  string
	subject string // of its documents, with wildcards
	parse   func(subject string, data []byte) (value, error)
}

// value is a sealed value in a message.
type value struct {
	in     proto.Message
	at     seal.Place
	sealed *[]byte // in in; nil: it has none
}

// kinds are the documents that are sealed again.
var kinds = []kindOf{
	{streams.Vault, "vault.*.*", secretOf},
	{streams.Hooks, "hook.*.*", webhookOf},
	{streams.Accounts, "acct.*.key.*", keyPairOf},
	{streams.Accounts, "acct.cluster.signer.*", signingKeyOf},
	{streams.Users, "user.tokenkey.*", tokenKeyOf},
	{streams.Snapshots, "snap.*.*", snapshotOf},
	{streams.Bundles, "bundle.value.*.*.*", bundleValueOf},
	{streams.Conversations, "conv.*.*", conversationOf},
}

func secretOf(_ string, data []byte) (value, error) {
	var b pb.Secret
	err := proto.Unmarshal(data, &b)
	return value{&b, (&catalog.Secret{Tenant: b.Tenant, ID: b.Id}).Place(), &b.Sealed}, err
}

func webhookOf(_ string, data []byte) (value, error) {
	var b pb.Webhook
	err := proto.Unmarshal(data, &b)
	return value{&b, (&webhook.Webhook{Tenant: b.Tenant, ID: webhook.ID(b.Id)}).Place(), &b.Sealed}, err
}

func keyPairOf(subject string, data []byte) (value, error) {
	var b pb.AccountEvent
	if err := proto.Unmarshal(data, &b); err != nil {
		return value{}, err
	}
	k := b.GetKeyIssued()
	if k == nil {
		return value{}, fmt.Errorf("%T is not a key", b.Body)
	}
	tenant, _, ok := strings.Cut(strings.TrimPrefix(subject, "acct."), ".key.")
	if !ok {
		return value{}, errors.New("the subject is not that of a key")
	}
	return value{&b, (&catalog.Key{Tenant: tenant, ID: k.Id}).Place(), &k.Sealed}, nil
}

func signingKeyOf(_ string, data []byte) (value, error) {
	var b pb.AccountEvent
	if err := proto.Unmarshal(data, &b); err != nil {
		return value{}, err
	}
	k := b.GetSigningKeyMade()
	if k == nil {
		return value{}, fmt.Errorf("%T is not a signing key", b.Body)
	}
	return value{&b, identity.Place(k.Number), &k.Sealed}, nil
}

func tokenKeyOf(_ string, data []byte) (value, error) {
	var b pb.UserTokenKey
	err := proto.Unmarshal(data, &b)
	return value{&b, (&account.TokenKey{Number: b.Number}).Place(), &b.Sealed}, err
}

func snapshotOf(_ string, data []byte) (value, error) {
	var b pb.Snapshot
	err := proto.Unmarshal(data, &b)
	return value{&b, sandbox.EnvPlace(b.Tenant, b.Id), &b.SealedEnv}, err
}

func bundleValueOf(subject string, data []byte) (value, error) {
	var b pb.BundleValue
	if err := proto.Unmarshal(data, &b); err != nil {
		return value{}, err
	}
	parts := strings.Split(subject, ".")
	if len(parts) != 5 {
		return value{}, errors.New("the subject is not that of a value")
	}
	return value{&b, bundle.Place(parts[2], bundle.Generation(parts[3]), b.Key), &b.Sealed}, nil
}

func conversationOf(_ string, data []byte) (value, error) {
	var b pb.Conversation
	if err := proto.Unmarshal(data, &b); err != nil {
		return value{}, err
	}
	if b.Terms == nil {
		b.Terms = &pb.ConversationTerms{}
	}
	return value{&b, sandbox.PersistencePlace(b.Owner, b.Terms.PersistenceUrl), &b.Terms.PersistenceAuth}, nil
}
