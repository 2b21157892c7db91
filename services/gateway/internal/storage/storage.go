package storage

import (
	"github.com/millrace/millrace/services/gateway/internal/core"
)

// Storage implements the operations on volumes and secrets. Its methods may be called concurrently.
type Storage struct {
	core *core.Core
}

// New returns a Storage on c. It does no I/O.
func New(c *core.Core) *Storage {
	return &Storage{core: c}
}
