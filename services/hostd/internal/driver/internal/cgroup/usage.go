package cgroup

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Usage is the resource usage of a group's processes; sums include those that have
// ended. What the group does not report has its flag unset.
type Usage struct {
	CPU       time.Duration
	Memory    uint64 // bytes, without file pages that were not used recently
	PIDs      []int
	OOMKills  uint64
	HasCPU    bool
	HasMemory bool
	HasPIDs   bool
}

// Usage measures the group.
func (g *Group) Usage() Usage {
	var u Usage
	u.CPU, u.HasCPU = g.CPU()
	for _, p := range g.paths() {
		for _, f := range [][2]string{{"memory.current", "inactive_file"}, {"memory.usage_in_bytes", "total_inactive_file"}} {
			if all, ok := number(p, f[0]); ok && !u.HasMemory {
				cold, _ := field(p, "memory.stat", f[1])
				u.Memory, u.HasMemory = all-min(cold, all), true
			}
		}
		for _, f := range oomFiles {
			if n, ok := field(p, f, "oom_kill"); ok {
				u.OOMKills = n
			}
		}
		if !u.HasPIDs {
			u.PIDs, u.HasPIDs = pids(p)
		}
	}
	return u
}

// CPU returns the time that the group's processes have used, those that have ended included.
// It returns false if that is not counted, or the group no longer exists.
func (g *Group) CPU() (time.Duration, bool) {
	for _, p := range g.paths() {
		if us, ok := field(p, "cpu.stat", "usage_usec"); ok {
			return time.Duration(us) * time.Microsecond, true
		}
		if ns, ok := number(p, "cpuacct.usage"); ok {
			return time.Duration(ns), true
		}
	}
	return 0, false
}

func pids(dir string) ([]int, bool) {
	all, err := procs(dir)
	if err != nil {
		return nil, false
	}
	return slices.DeleteFunc(all, func(pid int) bool { return pid == 0 || pid == os.Getpid() }), true
}

func number(dir, file string) (uint64, bool) {
	b, err := read(dir, file)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	return n, err == nil
}

// field returns the number behind a name, one a line.
func field(dir, file, name string) (uint64, bool) {
	b, err := read(dir, file)
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			n, err := strconv.ParseUint(strings.TrimSpace(rest), 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

// read is os.ReadFile in four system calls instead of ten: each sandbox is polled all the
// time, and many are idle.
func read(dir, file string) ([]byte, error) {
	fd, err := unix.Open(filepath.Join(dir, file), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	b := make([]byte, 0, 4096)
	for {
		n, err := unix.Read(fd, b[len(b):cap(b)])
		if n <= 0 || err != nil {
			return b, err
		}
		if b = b[:len(b)+n]; len(b) == cap(b) {
			b = slices.Grow(b, cap(b))
		}
	}
}
