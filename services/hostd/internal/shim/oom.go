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

// openOOM opens the file of the shim's own memory cgroup that counts OOM kills, for drivers
// that pass none. It returns 0 if the sandbox cannot see one.
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

// readOOM returns how many processes of the sandbox the kernel has killed for lack of
// memory.
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

// outOfMemory reports whether there was an OOM kill that is not attributed to a process
// yet, and attributes it. Kills from before the process began do not count: the kernel also
// kills processes without a record. It does not report which process it chose: of two that die
// of SIGKILL at the same moment, the first gets it.
func (s *Shim) outOfMemory(before uint64) bool {
	if kills := s.readOOM(); kills > max(s.oomKills, before) {
		s.oomKills++
		return true
	}
	return false
}

// When memory runs out, the kernel kills the largest process. Files in memory belong to no
// process, so that could be the shim; its children get a higher oom_score_adj. The unit is
// thousandths of the limit: the difference leaves shimReserve MiB for the shim. It is not far
// above oomScoreStep, because a browser gives its renderers 300 and would be killed before
// them; a browser does not fit into a sandbox in which the difference must be larger.
const (
	oomScoreStep = 100
	shimReserve  = 32 // MiB
	maxOOMScore  = 1000
)

// childOOMScore returns the oom_score_adj for the shim's children, in a sandbox with that many
// MiB; nil if the shim's own is 0, as in a VM.
func childOOMScore(memory uint64) []byte {
	b, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		return nil
	}
	own, err := strconv.ParseUint(string(bytes.TrimSpace(b)), 10, 64)
	if err != nil || own == 0 {
		return nil
	}
	more := uint64(oomScoreStep)
	if memory > 0 {
		more = max(more, shimReserve*maxOOMScore/memory)
	}
	return strconv.AppendUint(nil, min(own+more, maxOOMScore), 10)
}

// setOOMScore makes the kernel kill a process, and its children, before the shim.
func (s *Shim) setOOMScore(pid int) {
	if len(s.childOOMScore) > 0 {
		os.WriteFile(filepath.Join("/proc", strconv.Itoa(pid), "oom_score_adj"), s.childOOMScore, 0) //nolint:errcheck // it has ended
	}
}
