package driver

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
