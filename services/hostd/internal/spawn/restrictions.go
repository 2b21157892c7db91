package spawn

import (
	"os"

	"golang.org/x/net/bpf"
)

// Restrictions are what a child takes on, for good, before it executes its program. Package
// confine makes them.
type Restrictions struct {
	Ruleset *os.File             // of landlock
	Filter  []bpf.RawInstruction // of seccomp; empty: no filter
}

// Close frees the restrictions when no further child needs them. r may be nil.
func (r *Restrictions) Close() {
	if r != nil {
		r.Ruleset.Close()
	}
}
