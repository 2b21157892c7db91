package catalog

import (
	"context"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/internal/codec"
	"github.com/millrace/millrace/events/internal/fold"
	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/seal"
	pb "github.com/millrace/millrace/schema/event/v1"
)

// Secret is a tenant's secret. Its value is sealed, and opened only where it is used.
type Secret struct {
	ID       string // a token of a subject
	Tenant   string
	Name     string
	Version  uint64 // from 1
	Sealed   seal.Text
	Metadata map[string]string
	Created  time.Time
	Updated  time.Time
	Removed  bool
	Rev      uint64 // stream sequence of its last change, which the next change must expect
	changed  time.Time
}

// Place returns the place of the secret's sealed value.
func (s *Secret) Place() seal.Place {
	return seal.Place{Tenant: s.Tenant, Record: s.ID, Field: "value"}
}

// secretDocs describes secrets. A view finds them by their subject.
var secretDocs = &fold.Document[string, Secret]{
	Name: "secret", Stream: streams.Vault,
	Subject: subjectOfSecret,
	Key:     subjectOfSecret,
	Compare: func(a, b Secret) int { return strings.Compare(a.Name, b.Name) },
	Rev:     func(s *Secret) uint64 { return s.Rev },
	Encode:  encodeSecret,
	Decode:  decodeSecret,
	Over:    func(s *Secret) (time.Time, bool) { return s.changed, s.Removed },
	Keep:    deletedAge + viewAge,
	Find:    func(subject string) string { return subject },
}

func vaultSubject(tenant, id string) string { return "vault." + tenant + "." + id }

func subjectOfSecret(s *Secret) string { return vaultSubject(s.Tenant, s.ID) }

func encodeSecret(s *Secret) proto.Message {
	return &pb.Secret{
		Id: s.ID, Tenant: s.Tenant, Name: s.Name, Version: s.Version, Sealed: []byte(s.Sealed), Metadata: s.Metadata,
		CreatedNs: codec.Nanos(s.Created), UpdatedNs: codec.Nanos(s.Updated), Removed: s.Removed,
	}
}

func decodeSecret(m store.Message) (Secret, error) {
	var b pb.Secret
	if err := proto.Unmarshal(m.Data, &b); err != nil {
		return Secret{}, err
	}
	return Secret{
		ID: b.Id, Tenant: b.Tenant, Name: b.Name, Version: b.Version, Sealed: seal.Text(b.Sealed), Metadata: b.Metadata,
		Created: codec.Time(b.CreatedNs), Updated: codec.Time(b.UpdatedNs), Removed: b.Removed, Rev: m.Seq, changed: m.Time,
	}, nil
}

// NewSecret stores a new secret, ignoring its Rev. It returns Conflict if its ID exists.
func (d *Documents) NewSecret(ctx context.Context, s *Secret) error {
	return secretDocs.Create(ctx, d.conn, s)
}

// PutSecret replaces the secret with stream sequence s.Rev; the old value is deleted. It
// returns Conflict as in AppendSandbox.
func (d *Documents) PutSecret(ctx context.Context, s *Secret) error {
	_, err := secretDocs.Put(ctx, d.conn, s)
	return err
}

// TenantSecret returns a tenant's secret by its id, including one that was removed lately.
func (v *View) TenantSecret(tenant, id string) (Secret, bool) {
	return v.secrets.Get(vaultSubject(tenant, id))
}

// TenantSecrets returns a tenant's secrets by name, without removed ones.
func (v *View) TenantSecrets(tenant string) []Secret {
	return v.secrets.List(func(s *Secret) bool { return s.Tenant == tenant && !s.Removed })
}
