package shim

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// openOOM finds the file of the shim's own memory cgroup that counts kills, where
// the driver handed in none and the sandbox can see it. 0: there is none.
func openOOM() int {
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 {
			continue
		}
		file := ""
		switch {
		case slices.Contains(strings.Split(f[1], ","), "memory"):
			file = filepath.Join("/sys/fs/cgroup/memory", f[2], "memory.oom_control")
		case f[0] == "0":
			file = filepath.Join("/sys/fs/cgroup", f[2], "memory.events")
		}
		if fd, err := unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
			return fd
		}
	}
	return 0
}

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
// yet, and counts it as told. One from before a process began was not its own: the
// kernel also takes what no process of the record is. Which it chose it does not say:
// of two that die of SIGKILL at the same moment, the first is taken.
func (s *Shim) outOfMemory(before uint64) bool {
	if kills := s.readOOM(); kills > max(s.oomKills, before) {
		s.oomKills++
		return true
	}
	return false
}

// What the shim starts is likelier than the shim to be ended where memory is used up: the
// kernel takes the largest process, and files in memory are nobody's, so that it might be
// the shim. It counts thousandths of the limit, of which ours is to be room for a shim. More
// than sooner would have a browser go before its own renderers, to which it gives 300; it
// fits into no sandbox in which that is not enough.
const (
	sooner  = 100
	ours    = 32 // MiB
	highest = 1000
)

// expendable is the oom_score_adj of what the shim starts, in a sandbox of so many MiB; empty
// where the shim has none, as in a kernel of its own.
func expendable(memory uint64) []byte {
	b, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		return nil
	}
	own, err := strconv.ParseUint(string(bytes.TrimSpace(b)), 10, 64)
	if err != nil || own == 0 {
		return nil
	}
	more := uint64(sooner)
	if memory > 0 {
		more = max(more, ours*highest/memory)
	}
	return strconv.AppendUint(nil, min(own+more, highest), 10)
}

// expend has the kernel take a process, and what that starts, before the shim.
func (s *Shim) expend(pid int) {
	if len(s.expends) > 0 {
		os.WriteFile(filepath.Join("/proc", strconv.Itoa(pid), "oom_score_adj"), s.expends, 0) //nolint:errcheck // it has ended
	}
}
