package hostd

import (
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/disk"
	"github.com/millrace/millrace/services/hostd/internal/volumes"
)

// newDisk returns the guard of the host's disk.
func (h *host) newDisk() *disk.Guard {
	return disk.New(disk.Config{
		Volume: func(id sandbox.VolumeID) string { return volumes.Path(h.volumeDir(), id) },
		Path:   h.cfg.DataDir, Users: h.sandboxes.diskUsers, Shed: h.cache.Shed, Go: h.wg.Go, Log: h.slog,
	})
}

// diskUsers returns the running sandboxes as users of the disk.
func (set *sandboxSet) diskUsers() []*disk.User {
	var all []*disk.User
	for _, sb := range set.measured() {
		all = append(all, sb.disk)
	}
	return all
}
