package lifecycle

import (
	"sync"

	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/core"
)

// Lifecycle implements the operations on existing sandboxes. Its methods may be called concurrently.
type Lifecycle struct {
	core *core.Core

	mu      sync.Mutex
	pausing map[sandbox.ID]int // number of concurrent requests that pause a sandbox

	holds holds
}

// New returns a Lifecycle on c. It does no I/O.
func New(c *core.Core) *Lifecycle {
	return &Lifecycle{
		core: c, pausing: make(map[sandbox.ID]int),
		holds: holds{all: make(map[sandbox.ID]hold), wake: make(chan struct{}, 1)},
	}
}
