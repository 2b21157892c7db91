package events

import (
	"context"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/internal/codec"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	pb "github.com/millrace/millrace/schema/event/v1"
)

// Secret is a tenant's secret. Its value is sealed, and opened only where it is used.
type Secret struct {
	ID       string // a token of a subject
	Tenant   string
	Name     string
	Version  uint64 // from 1
	Sealed   sandbox.Sealed
	Metadata map[string]string
	Created  time.Time
	Updated  time.Time
	Removed  bool
	Rev      uint64 // stream sequence of its last change, which the next change must expect
	changed  time.Time
}

func vaultSubject(tenant, id string) string { return "vault." + tenant + "." + id }

// NewSecret stores a new secret, ignoring its Rev. It returns Conflict if its ID exists.
func (l *Log) NewSecret(ctx context.Context, s *Secret) error {
	data, err := encodeSecret(s)
	if err != nil {
		return kind.Wrap(kind.Internal, "new secret", s.ID, err)
	}
	return l.putNew(ctx, streamVault, vaultSubject(s.Tenant, s.ID), data, func(m stored) bool {
		was, err := decodeSecret(m)
		return err == nil && was.Removed
	})
}

// PutSecret replaces the secret with stream sequence s.Rev; the old value is deleted. It
// returns Conflict as in AppendSandbox.
func (l *Log) PutSecret(ctx context.Context, s *Secret) error {
	data, err := encodeSecret(s)
	if err != nil {
		return kind.Wrap(kind.Internal, "put secret", s.ID, err)
	}
	_, err = l.put(ctx, streamVault, vaultSubject(s.Tenant, s.ID), s.Rev, data)
	return err
}

func encodeSecret(s *Secret) ([]byte, error) {
	return proto.Marshal(&pb.Secret{
		Id: s.ID, Tenant: s.Tenant, Name: s.Name, Version: s.Version, Sealed: []byte(s.Sealed), Metadata: s.Metadata,
		CreatedNs: codec.Nanos(s.Created), UpdatedNs: codec.Nanos(s.Updated), Removed: s.Removed,
	})
}

func decodeSecret(m stored) (Secret, error) {
	var b pb.Secret
	if err := proto.Unmarshal(m.data, &b); err != nil {
		return Secret{}, err
	}
	return Secret{
		ID: b.Id, Tenant: b.Tenant, Name: b.Name, Version: b.Version, Sealed: sandbox.Sealed(b.Sealed), Metadata: b.Metadata,
		Created: codec.Time(b.CreatedNs), Updated: codec.Time(b.UpdatedNs), Removed: b.Removed, Rev: m.seq, changed: m.time,
	}, nil
}

func (v *View) applySecret(m stored) error {
	s, err := decodeSecret(m)
	if err == nil {
		v.secrets[m.subject] = s
	}
	return err
}

// TenantSecret returns a tenant's secret by its id, including one that was removed lately.
func (v *View) TenantSecret(tenant, id string) (Secret, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	s, ok := v.secrets[vaultSubject(tenant, id)]
	return s, ok
}

// TenantSecrets returns a tenant's secrets by name, without removed ones.
func (v *View) TenantSecrets(tenant string) []Secret {
	v.mu.Lock()
	var out []Secret
	for _, s := range v.secrets {
		if s.Tenant == tenant && !s.Removed {
			out = append(out, s)
		}
	}
	v.mu.Unlock()
	slices.SortFunc(out, func(a, b Secret) int { return strings.Compare(a.Name, b.Name) })
	return out
}
