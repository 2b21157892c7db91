package procs

import (
	"sync"

	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/lifecycle"
)

// Procs implements the operations on processes. Its methods may be called concurrently.
type Procs struct {
	core      *core.Core
	lifecycle *lifecycle.Lifecycle

	mu        sync.Mutex
	unclaimed []pending // oldest first: all have the same timeout
}

// New returns Procs on c. It does no I/O.
func New(c *core.Core, l *lifecycle.Lifecycle) *Procs {
	return &Procs{core: c, lifecycle: l}
}
