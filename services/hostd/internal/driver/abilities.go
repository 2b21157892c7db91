package driver

import "github.com/millrace/millrace/events/sandbox"

// Abilities are what a driver can do on this host, and what it cannot, in words for
// the host's owner. Why it cannot is in Notes, unless no host could change it.
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
