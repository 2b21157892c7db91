package oom

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Open opens the file of the shim's own memory cgroup that counts OOM kills, for drivers
// that pass none. It returns 0 if the sandbox cannot see one.
func Open() int {
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

// Counter counts the OOM kills in a sandbox. It is safe for concurrent use.
type Counter struct {
	fd int // of the cgroup's memory.events or memory.oom_control; 0: none

	mu         sync.Mutex
	attributed uint64 // kills that have a process, or that came before all processes
}

// NewCounter returns a counter that reads an open memory.events or memory.oom_control; 0: it
// counts nothing.
func NewCounter(fd int) *Counter {
	c := &Counter{fd: fd}
	c.attributed = c.Kills()
	return c
}

// Kills returns how many processes of the sandbox the kernel has killed for lack of memory.
func (c *Counter) Kills() uint64 {
	if c.fd == 0 {
		return 0
	}
	var b [1024]byte
	n, err := unix.Pread(c.fd, b[:], 0)
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

// Attribute reports whether there was an OOM kill that is not attributed to a process
// yet, and attributes it. Kills from before the process began do not count: the kernel also
// kills processes without a record. It does not report which process it chose: of two that die
// of SIGKILL at the same moment, the first gets it.
func (c *Counter) Attribute(before uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if kills := c.Kills(); kills > max(c.attributed, before) {
		c.attributed++
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

// Score is the oom_score_adj of the shim's children. The empty value leaves theirs alone.
type Score []byte

// ChildScore returns the score for the shim's children, in a sandbox with that many MiB. It is
// empty if the shim's own is 0, as in a VM.
func ChildScore(memory uint64) Score {
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

// Set makes the kernel kill a process, and its children, before the shim.
func (s Score) Set(pid int) {
	if len(s) > 0 {
		os.WriteFile(filepath.Join("/proc", strconv.Itoa(pid), "oom_score_adj"), s, 0) //nolint:errcheck // it has ended
	}
}
