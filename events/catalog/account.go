package catalog

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/identity"
	"github.com/millrace/millrace/events/internal/codec"
	"github.com/millrace/millrace/events/internal/fold"
	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/seal"
	pb "github.com/millrace/millrace/schema/event/v1"
)

// accountTable is the part of a view that is folded from the stream of accounts: API keys,
// signing keys, and the names of templates. The stream has several kinds of document, so
// applyAccount sets them in their tables.
type accountTable struct {
	progress  *fold.Progress
	keys      *fold.Table[[32]byte, Key] // by their hash
	revoked   map[string]uint64          // tenant -> stream sequence of the last revocation
	gone      map[goneKey]bool           // revoked keys, which may be stored again later; see package reseal
	signing   *fold.Table[uint32, identity.Stored]
	templates *fold.Table[templateKey, Template]
	published map[nameKey]bool
}

// goneKey names a revoked key.
type goneKey struct{ tenant, id string }

func newAccountTable(p *fold.Progress) *accountTable {
	return &accountTable{
		progress:  p,
		keys:      fold.NewTable(p, keyDocs),
		revoked:   make(map[string]uint64),
		gone:      make(map[goneKey]bool),
		signing:   fold.NewTable(p, signingKeyDocs),
		templates: fold.NewTable(p, templateDocs),
		published: make(map[nameKey]bool),
	}
}

func (a *accountTable) applyAccount(m store.Message) error {
	var b pb.AccountEvent
	if err := proto.Unmarshal(m.Data, &b); err != nil {
		return err
	}
	switch e := b.Body.(type) {
	case *pb.AccountEvent_TemplateTagged:
		return a.applyTagged(m.Subject, codec.Time(b.TimeNs), e.TemplateTagged)
	case *pb.AccountEvent_TemplateUntagged:
		return a.applyUntagged(m.Subject, e.TemplateUntagged)
	case *pb.AccountEvent_SigningKeyMade:
		a.signing.Set(identity.Stored{Number: e.SigningKeyMade.Number, Made: codec.Time(b.TimeNs), Sealed: seal.Text(e.SigningKeyMade.Sealed)})
	case *pb.AccountEvent_TemplatePublished:
		return a.applyPublished(m.Subject, e.TemplatePublished)
	case *pb.AccountEvent_KeyIssued:
		k := Key{ID: e.KeyIssued.Id, Hint: e.KeyIssued.Hint, Name: e.KeyIssued.Name, Issued: codec.Time(b.TimeNs), Access: e.KeyIssued.Access, Secret: seal.Text(e.KeyIssued.Sealed)}
		if copy(k.SHA256[:], e.KeyIssued.Sha256) != len(k.SHA256) {
			return fmt.Errorf("hash of %d bytes", len(e.KeyIssued.Sha256))
		}
		tenant, ok := tenantOf(m.Subject)
		if !ok {
			return fmt.Errorf("subject %q", m.Subject)
		}
		k.Tenant, k.Revoked = tenant, a.gone[goneKey{tenant, k.ID}]
		a.keys.Set(k)
	case *pb.AccountEvent_KeyHashed:
		a.applyHashed(e.KeyHashed)
	case *pb.AccountEvent_KeyRevoked:
		if tenant, ok := tenantOf(m.Subject); ok {
			a.revoked[tenant] = m.Seq
			a.gone[goneKey{tenant, e.KeyRevoked.Id}] = true
		}
		for _, k := range a.keys.Docs {
			if k.ID == e.KeyRevoked.Id {
				k.Revoked = true
				a.keys.Set(k)
			}
		}
	}
	return nil
}
