package shim

import (
	"os"
	"strconv"
	"strings"
)

// descendants are the pids of all that descend from root and are no zombies.
func descendants(root int) []int {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close() //nolint:errcheck // it was only read from
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil
	}
	children := make(map[int][]int)
	dead := make(map[int]bool)
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if parent, state := parentOf(name); parent > 0 {
			children[parent] = append(children[parent], pid)
			dead[pid] = state == "X" || state == "Z" && !headless(name)
		}
	}
	var out []int
	for next := children[root]; len(next) > 0; {
		pid := next[len(next)-1]
		next = append(next[:len(next)-1], children[pid]...)
		if !dead[pid] {
			out = append(out, pid)
		}
	}
	return out
}

// headless reports whether a process that looks like a zombie has lost its first thread
// only, and goes on.
func headless(pid string) bool {
	threads, err := os.ReadDir("/proc/" + pid + "/task")
	return err == nil && len(threads) > 1
}

// parentOf reads a process's parent and state; 0 if it is gone.
func parentOf(pid string) (parent int, state string) {
	b, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return 0, ""
	}
	stat := string(b) // pid (name) state ppid ...; the name may hold anything
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 2 {
		return 0, ""
	}
	parent, err = strconv.Atoi(fields[1])
	if err != nil {
		return 0, ""
	}
	return parent, fields[0]
}
