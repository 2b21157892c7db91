package template

import (
	"crypto/sha256"
	"strings"

	"github.com/millrace/millrace/events/seal"
)

// Built is a template made by a build: a snapshot and the defaults of its processes. It is
// immutable.
type Built struct {
	ID        ID                // BuiltID of its name
	Build     string            // a build.ID
	Base      string            // the template on which Snapshot is based
	Snapshot  string            // a sandbox.SnapshotID; empty: the base's files unchanged
	Env       map[string]string // not stored
	Sealed    seal.Text         // Env in records; see [Built.Seal]
	User      string            // empty: the base's
	Workdir   string            // empty: the base's
	Start     string            // shell command that every sandbox runs; empty: none
	Ready     string            // shell command that exits with 0 once Start is ready
	CPUMilli  uint32            // limits of a sandbox without its own; 0: none
	MemoryMiB uint32
}

func (b *Built) envPlace(tenant string) seal.Place {
	return seal.Place{Tenant: tenant, Record: string(b.ID), Field: "environment"}
}

// Seal returns b for the record of its tenant: only the ring can read its environment.
func (b *Built) Seal(r *seal.Ring, tenant string) (*Built, error) {
	out := *b
	sealed, err := r.SealMap(b.envPlace(tenant), b.Env)
	out.Env, out.Sealed = nil, sealed
	return &out, err
}

// OpenEnv returns the environment of a template that Seal returned. Older ones are not sealed.
func (b *Built) OpenEnv(r *seal.Ring, tenant string) (map[string]string, error) {
	if b.Sealed == "" {
		return b.Env, nil
	}
	return r.OpenMap(b.envPlace(tenant), b.Sealed)
}

const (
	builtPrefix = "t"
	builtLen    = 21
	// hiddenPrefix begins the names of templates that clients cannot name, on which others
	// are based.
	hiddenPrefix = "_"

	builtAlphabet = "0123456789abcdefghijklmnopqrstuvwxyz"
)

// BuiltID returns the ID of all builds of a tenant's template name.
func BuiltID(tenant, name string) ID {
	sum := sha256.Sum256([]byte("millrace template\x00" + tenant + "\x00" + name))
	b := []byte(builtPrefix)
	for _, c := range sum[:builtLen-1] {
		b = append(b, builtAlphabet[int(c)%len(builtAlphabet)])
	}
	return ID(b)
}

// IsBuiltID reports whether s may be a BuiltID.
func IsBuiltID(s string) bool {
	return len(s) == builtLen && strings.HasPrefix(s, builtPrefix) && strings.Trim(s, builtAlphabet) == ""
}

// HiddenRef returns the reference that keeps a template on which others are based. It
// cannot be parsed.
func HiddenRef(of string) Ref {
	return Ref{Name: hiddenPrefix + string(SumOf([]byte(of))[:40]), Tag: DefaultTag}
}

// Hidden reports whether a name is that of a HiddenRef.
func Hidden(name string) bool { return strings.HasPrefix(name, hiddenPrefix) }
