package driver

import "github.com/millrace/millrace/events/sandbox"

// Abilities returns what a driver can and cannot do on this host, in words for the
// host's operator. Notes has the reasons, except for what no host could change.
func (c *Caps) Abilities() (can, cannot []string) {
	for _, a := range []struct {
		what string
		has  bool
	}{
		{"limit memory", c.MemoryLimit}, {"limit processes", c.PidsLimit}, {"limit CPU", c.CPULimit}, {"limit disk", c.DiskLimit},
		{"pause", c.Pause}, {"snapshot files", c.Files}, {"snapshot memory", c.Memory}, {"show volumes", c.Volumes},
	} {
		if a.has {
			can = append(can, a.what)
		} else {
			cannot = append(cannot, a.what)
		}
	}
	return can, cannot
}

// Enforced returns the limits that hold for a sandbox as a whole.
func (c *Caps) Enforced() []sandbox.Limit {
	var all []sandbox.Limit
	for _, l := range []struct {
		limit sandbox.Limit
		holds bool
	}{
		{sandbox.LimitCPU, c.CPULimit}, {sandbox.LimitMemory, c.MemoryLimit},
		{sandbox.LimitDisk, c.DiskLimit}, {sandbox.LimitPIDs, c.PidsLimit},
	} {
		if l.holds {
			all = append(all, l.limit)
		}
	}
	return all
}
