package templatestore

import (
	"github.com/millrace/millrace/services/gateway/internal/bases"
	"github.com/millrace/millrace/services/gateway/internal/builds"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/snapshots"
)

// Store implements the operations on templates. Its methods may be called concurrently.
type Store struct {
	core      *core.Core
	bases     *bases.Bases
	builds    *builds.Builds
	snapshots *snapshots.Snapshots
}

// New returns a Store on c. It does no I/O.
func New(c *core.Core, base *bases.Bases, bs *builds.Builds, ss *snapshots.Snapshots) *Store {
	return &Store{core: c, bases: base, builds: bs, snapshots: ss}
}
