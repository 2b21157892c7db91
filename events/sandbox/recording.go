package sandbox

import (
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/redact"
	"github.com/millrace/millrace/events/seal"
)

// Policy is how much of a process is kept in its record and in the catalog. Of two policies the
// greater one is stricter.
type Policy uint8

// The policies; their numbers are stored.
const (
	RecordFull Policy = iota // everything but the environment
	RecordMeta               // everything but output
	RecordNone               // no output, and no command, arguments, directory and user either
)

var policies = [...]string{RecordFull: "full", RecordMeta: "meta", RecordNone: "none"}

// String returns the policy's name on every wire.
func (p Policy) String() string {
	if int(p) < len(policies) {
		return policies[p]
	}
	return policies[RecordNone]
}

// ParsePolicy returns the policy of a name; the empty name is RecordFull. Its errors have
// kind.Invalid.
func ParsePolicy(name string) (Policy, error) {
	for p, n := range policies {
		if n == name {
			return Policy(p), nil
		}
	}
	if name == "" {
		return RecordFull, nil
	}
	return RecordFull, kind.Newf(kind.Invalid, "parse record policy", "", "record must be full, meta or none, not %q", name)
}

// PolicyOf returns a stored policy. One that this version does not have is an error: it may be
// stricter than all others.
func PolicyOf(n uint64) (Policy, error) {
	if n > uint64(RecordNone) {
		return RecordNone, kind.Newf(kind.Unimplemented, "parse record policy", "", "unknown record policy %d", n)
	}
	return Policy(n), nil
}

// KeepsOutput reports whether output is stored.
func (p Policy) KeepsOutput() bool { return p == RecordFull }

// Recording is what is kept of a sandbox's processes.
type Recording struct {
	Record Policy    // the stricter one of this and a process's own counts
	Redact []string  // patterns of what is replaced in output and commands (package redact); not stored
	Hidden seal.Text // Redact in records; see [Recording.Seal]
}

// Check returns an error of kind.Invalid if the patterns cannot be used.
func (c *Recording) Check() error {
	_, err := redact.Compile(c.Redact)
	return err
}

func redactPlace(tenant, id string) seal.Place {
	return seal.Place{Tenant: tenant, Record: id, Field: "redaction"}
}

// Seal returns c for the record of a sandbox: only the ring can read the patterns, because a pattern
// may be the secret itself.
func (c Recording) Seal(r *seal.Ring, tenant, id string) (Recording, error) {
	sealed, err := r.SealList(redactPlace(tenant, id), c.Redact)
	c.Redact, c.Hidden = nil, sealed
	return c, err
}

// Patterns returns the patterns of what Seal returned.
func (c *Recording) Patterns(r *seal.Ring, tenant, id string) ([]string, error) {
	if c.Hidden == "" {
		return c.Redact, nil
	}
	return r.OpenList(redactPlace(tenant, id), c.Hidden)
}
