package main

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// priority is the nice value of a service.
const priority = -10

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
