package provision

import (
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/lifecycle"
	"github.com/millrace/millrace/services/gateway/internal/procs"
	"github.com/millrace/millrace/services/gateway/internal/snapshots"
)

// Provisioner creates sandboxes. Its methods may be called concurrently.
type Provisioner struct {
	core      *core.Core
	lifecycle *lifecycle.Lifecycle
	procs     *procs.Procs
	snapshots *snapshots.Snapshots
}

// New returns a Provisioner on c. It does no I/O.
func New(c *core.Core, l *lifecycle.Lifecycle, ps *procs.Procs, ss *snapshots.Snapshots) *Provisioner {
	return &Provisioner{core: c, lifecycle: l, procs: ps, snapshots: ss}
}
