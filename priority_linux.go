package main

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// priority is the nice value of a service.
const priority = -10

// oomScore is a service's: less than that of what runs in sandboxes by more than half of
// the machine's memory.
const oomScore = "-500"

// outlive has this process end after what runs in sandboxes where the machine's memory
// is used up, where it is root. What somebody has chosen stays. Drivers start sandboxes
// with another.
func outlive() {
	const path = "/proc/self/oom_score_adj"
	if was, err := os.ReadFile(path); err == nil && strings.TrimSpace(string(was)) == "0" {
		os.WriteFile(path, []byte(oomScore), 0) //nolint:errcheck // not allowed to everybody
	}
}

// precede has this process go before what runs in sandboxes, and before all else
// that leaves its priority alone, where it is root: who floods, forks or computes
// then delays what others' commands wait for by less. Where somebody has chosen a
// priority, it stays. Drivers start sandboxes without it.
func precede() {
	const normal = 20 // as the system call tells it
	if p, err := unix.Getpriority(unix.PRIO_PROCESS, 0); err != nil || p != normal {
		return
	}
	// What all of a session's threads get, as Linux shares a desktop's CPUs; nothing in a cgroup.
	os.WriteFile("/proc/self/autogroup", []byte(strconv.Itoa(priority)), 0) //nolint:errcheck // not every kernel has it
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return
	}
	for _, t := range threads { // those to come inherit it
		if tid, err := strconv.Atoi(t.Name()); err == nil {
			unix.Setpriority(unix.PRIO_PROCESS, tid, priority) //nolint:errcheck // not allowed to everybody
		}
	}
}
