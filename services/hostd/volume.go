package hostd

import (
	"path/filepath"

	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/volumes"
)

const volumeDir = "volumes"

func (h *host) volumeDir() string { return filepath.Join(h.cfg.DataDir, volumeDir) }

// newVolumes returns the volumes of the host. The view must be open.
func (h *host) newVolumes() *volumes.Store {
	return volumes.New(volumes.Config{
		Dir: h.volumeDir(), Host: h.cfg.Name, Log: h.log, View: h.view, InUse: h.sandboxes.usesVolume, Space: h.disk.CheckVolume, Slog: h.slog,
	})
}

// usesVolume reports whether a sandbox of this host uses a volume.
func (set *sandboxSet) usesVolume(id sandbox.VolumeID) bool {
	set.mu.Lock()
	defer set.mu.Unlock()
	for _, sb := range set.byID {
		for _, m := range sb.req.Volumes {
			if m.Volume == id {
				return true
			}
		}
	}
	return false
}
