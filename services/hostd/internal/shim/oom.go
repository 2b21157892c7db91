package shim

import (
	"bytes"
	"strconv"

	"golang.org/x/sys/unix"
)

// readOOM is how many processes of the sandbox the kernel has killed for want of
// memory, by the cgroup's file that the driver handed in.
func (s *Shim) readOOM() uint64 {
	if s.cfg.OOM == 0 {
		return 0
	}
	var b [1024]byte
	n, err := unix.Pread(s.cfg.OOM, b[:], 0)
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(b[:n]) {
		if rest, ok := bytes.CutPrefix(line, []byte("oom_kill ")); ok {
			kills, err := strconv.ParseUint(string(bytes.TrimSpace(rest)), 10, 64)
			if err == nil {
				return kills
			}
		}
	}
	return 0
}

// outOfMemory reports whether a kill was counted that no process was told of
// yet, and counts it as told. Which process the kernel chose it does not say: of
// two that die of SIGKILL at the same moment, the first is taken.
func (s *Shim) outOfMemory() bool {
	if kills := s.readOOM(); kills > s.oomKills {
		s.oomKills++
		return true
	}
	return false
}
