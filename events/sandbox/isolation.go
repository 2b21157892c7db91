package sandbox

import (
	"slices"

	"github.com/millrace/millrace/events/kind"
)

// Isolation is the boundary between a sandbox and its host.
type Isolation string

// The levels, weakest first.
const (
	IsolationNone    Isolation = "none"    // nothing
	IsolationProcess Isolation = "process" // namespaces and filters on the host's kernel
	IsolationKernel  Isolation = "kernel"  // a kernel of its own in user space
	IsolationMachine Isolation = "machine" // a virtual machine
)

// Isolations returns all levels, weakest first.
func Isolations() []Isolation {
	return []Isolation{IsolationNone, IsolationProcess, IsolationKernel, IsolationMachine}
}

// AtLeast reports whether i is as strong as want. An empty want is always met; an unknown
// level counts as none.
func (i Isolation) AtLeast(want Isolation) bool {
	all := Isolations()
	return want == "" || max(0, slices.Index(all, i)) >= slices.Index(all, want)
}

// ParseIsolation validates a level from outside; empty means any.
func ParseIsolation(s string) (Isolation, error) {
	if s != "" && !slices.Contains(Isolations(), Isolation(s)) {
		return "", kind.New(kind.Invalid, "parse isolation", "", "isolation must be none, process, kernel or machine")
	}
	return Isolation(s), nil
}
