package procs

import (
	"context"

	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/lifecycle"
)

// Procs implements the operations on processes. Its methods may be called concurrently.
type Procs struct {
	core      *core.Core
	lifecycle *lifecycle.Lifecycle
	unclaimed unclaimed
}

// New returns Procs on c. It does no I/O.
func New(c *core.Core, l *lifecycle.Lifecycle) *Procs {
	return &Procs{core: c, lifecycle: l, unclaimed: unclaimed{core: c}}
}

// Run ends the records of starts that no host claims, until ctx ends.
func (ps *Procs) Run(ctx context.Context) error { return ps.unclaimed.run(ctx) }
