package events

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/kind"
	pb "github.com/millrace/millrace/schema/event/v1"
)

// Secret is a tenant's secret as the log has it: its value is sealed by whoever
// stores it, and only who has the cluster's key can open it.
type Secret struct {
	ID       string // it is a token of a subject
	Tenant   string
	Name     string
	Version  uint64 // from 1
	Sealed   []byte
	Metadata map[string]string
	Created  time.Time
	Updated  time.Time
	Removed  bool
	Rev      uint64 // stream sequence of its last change: what the next must expect
}

func secretSubject(tenant, id string) string { return "acct." + tenant + ".secret." + id }

// PutSecret stores a secret's next version, or its removal, in place of what its
// Rev says (0: nothing). Conflict as in AppendSandbox. Earlier versions stay in the
// log, sealed.
func (l *Log) PutSecret(ctx context.Context, s *Secret) error {
	e := &pb.AccountEvent{TimeNs: nanos(time.Now()), Body: &pb.AccountEvent_SecretStored{SecretStored: &pb.SecretStored{
		Id: s.ID, Name: s.Name, Version: s.Version, Sealed: s.Sealed, Metadata: s.Metadata,
	}}}
	if s.Removed {
		e.Body = &pb.AccountEvent_SecretRemoved{SecretRemoved: &pb.SecretRemoved{Id: s.ID}}
	}
	data, err := proto.Marshal(e)
	if err != nil {
		return kind.Wrap(kind.Internal, "put secret", s.ID, err)
	}
	_, err = l.put(ctx, streamAccounts, secretSubject(s.Tenant, s.ID), s.Rev, data)
	return err
}

func (v *View) applySecret(subject string, at time.Time, rev uint64, e *pb.SecretStored) error {
	tenant, ok := tenantOf(subject)
	if !ok || subject != secretSubject(tenant, e.Id) {
		return fmt.Errorf("subject %q of secret %q", subject, e.Id)
	}
	s := Secret{
		ID: e.Id, Tenant: tenant, Name: e.Name, Version: e.Version, Sealed: e.Sealed,
		Metadata: e.Metadata, Created: at, Updated: at, Rev: rev,
	}
	if was, ok := v.secrets[subject]; ok && !was.Removed {
		s.Created = was.Created
	}
	v.secrets[subject] = s
	return nil
}

func (v *View) forgetSecret(subject string, rev uint64) error {
	s := v.secrets[subject]
	s.Removed, s.Rev, s.Sealed = true, rev, nil
	v.secrets[subject] = s
	return nil
}

// Secret gives a tenant's secret by its id, also one that was removed.
func (v *View) Secret(tenant, id string) (Secret, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	s, ok := v.secrets[secretSubject(tenant, id)]
	return s, ok
}

// Secrets gives a tenant's secrets by name, without those removed.
func (v *View) Secrets(tenant string) []Secret {
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
