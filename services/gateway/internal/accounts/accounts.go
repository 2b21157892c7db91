package accounts

import (
	"github.com/millrace/millrace/events/identity"
	"github.com/millrace/millrace/services/gateway/internal/core"
)

// Accounts implements the operations on accounts. Its methods may be called concurrently.
type Accounts struct {
	core   *core.Core
	ring   *identity.Ring
	hashes *hashes
}

// New returns Accounts on c. It does no I/O.
func New(c *core.Core) *Accounts {
	return &Accounts{core: c, ring: identity.NewRing(c.Sealer), hashes: newHashes(c)}
}
