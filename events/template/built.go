package template

import (
	"crypto/sha256"
	"strings"
)

// Built is a template that a build made: a snapshot, and what processes begin
// with. It is a value of the log's: not to be changed.
type Built struct {
	ID        ID     // BuiltID of its name
	Build     string // a build.ID
	Base      string // the template that Snapshot stands on
	Snapshot  string // a sandbox.SnapshotID; empty: the base's files as they are
	Env       map[string]string
	User      string // empty: the base's
	Workdir   string // empty: the base's
	Start     string // a command of the shell's that every sandbox runs; empty: none
	Ready     string // another, which ends with 0 when that one is ready
	CPUMilli  uint32 // limits of a sandbox that asks for none; 0: none
	MemoryMiB uint32
}

const (
	builtPrefix = "t"
	builtLen    = 21
	// hiddenPrefix begins the names of templates that nobody can ask for: what
	// others stand on.
	hiddenPrefix = "_"

	builtAlphabet = "0123456789abcdefghijklmnopqrstuvwxyz"
)

// BuiltID is the ID of what is built under a name of a tenant's: the same for all
// builds.
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

// HiddenRef is the reference by which a template is kept that others stand on.
// It cannot be parsed.
func HiddenRef(of string) Ref {
	return Ref{Name: hiddenPrefix + string(SumOf([]byte(of))[:40]), Tag: DefaultTag}
}

// Hidden reports whether a name is that of a HiddenRef.
func Hidden(name string) bool { return strings.HasPrefix(name, hiddenPrefix) }
