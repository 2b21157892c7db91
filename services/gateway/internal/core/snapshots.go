package core

import (
	"github.com/millrace/millrace/events/sandbox"
)

// Reachable reports whether a snapshot is in the store or on a live host.
func (c *Core) Reachable(s *sandbox.Snapshot) bool {
	return s.Copy.Manifest != "" || c.HostAlive(s.Host)
}

// TemplateSnapshots returns the snapshots that hold the files of templates, also of other tenants':
// builds may use a public template of another tenant.
func (c *Core) TemplateSnapshots() map[sandbox.SnapshotID]bool {
	stands := map[sandbox.SnapshotID]bool{}
	for _, t := range c.View.Templates("") {
		if t.Built != nil {
			stands[sandbox.SnapshotID(t.Built.Snapshot)] = true
		}
	}
	return stands
}
