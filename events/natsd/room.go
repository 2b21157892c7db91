package natsd

import (
	"io/fs"
	"path/filepath"
	"syscall"
)

const (
	// packing is how many times more bytes the server may count than it has on the disk:
	// blocks that an earlier version compressed count as what they were before.
	packing = 4
	// leastRoom is for what is stored next.
	leastRoom = 64 << 20
)

// limit is how many bytes streams can be given: Config.MaxStore, or three quarters of what
// is free on the disk and what they have of it; and something beyond what they have, since
// a disk that is full now may have room as soon as it is known who lives. The server's own
// guess is nothing there, for good.
func (s *Server) limit() int64 {
	if s.cfg.MaxStore > 0 {
		return s.cfg.MaxStore
	}
	var used int64
	filepath.WalkDir(s.cfg.Dir, func(_ string, e fs.DirEntry, err error) error { //nolint:errcheck // what cannot be read counts as nothing
		if err == nil && e.Type().IsRegular() {
			if info, err := e.Info(); err == nil {
				used += info.Size()
			}
		}
		return nil
	})
	var disk syscall.Statfs_t
	if err := syscall.Statfs(s.cfg.Dir, &disk); err != nil {
		return 0 // the server guesses
	}
	free := int64(uint64(disk.Bavail) * uint64(disk.Bsize)) //nolint:unconvert // elsewhere it is signed
	return max((free+used)/4*3, packing*used+leastRoom)
}
