package natsd

import (
	"io/fs"
	"path/filepath"
	"syscall"
)

const (
	// packing is the maximum ratio of the bytes that the server counts to those on disk:
	// blocks compressed by an earlier version count uncompressed.
	packing = 4
	// minHeadroom is reserved for the next messages.
	minHeadroom = 64 << 20
)

// limit returns the number of bytes available to streams: Config.MaxStore, or three
// quarters of the disk space that is free or used by streams. It always exceeds their
// present size, because a disk that is full now may have space again once sandboxes are
// evicted. The server's own estimate would then be zero, for good.
func (s *Server) limit() int64 {
	if s.cfg.MaxStore > 0 {
		return s.cfg.MaxStore
	}
	var used int64
	filepath.WalkDir(s.cfg.Dir, func(_ string, e fs.DirEntry, err error) error { //nolint:errcheck // unreadable files count as empty
		if err == nil && e.Type().IsRegular() {
			if info, err := e.Info(); err == nil {
				used += info.Size()
			}
		}
		return nil
	})
	var disk syscall.Statfs_t
	if err := syscall.Statfs(s.cfg.Dir, &disk); err != nil {
		return 0 // the server estimates
	}
	free := int64(uint64(disk.Bavail) * uint64(disk.Bsize))
	return max((free+used)/4*3, packing*used+minHeadroom)
}
