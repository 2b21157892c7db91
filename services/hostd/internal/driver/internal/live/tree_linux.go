package live

import (
	"os"
	"strconv"
	"time"
)

// Processes returns the running processes, each with its parent. Zombies do not count:
// they cannot be killed, and the process that reaps them is ending too. A process of
// which only the first thread has ended is not a zombie.
func Processes() (map[int]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	all := make(map[int]int, len(entries))
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		state, parent, err := Parent(pid)
		if err == nil && state != 'X' && (state != 'Z' || len(Threads(pid)) > 1) {
			all[pid] = parent
		}
	}
	return all, nil
}

// Threads returns the threads of a process; none if it has ended.
func Threads(pid int) (tids []int) {
	entries, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/task")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if tid, err := strconv.Atoi(e.Name()); err == nil {
			tids = append(tids, tid)
		}
	}
	return tids
}

// used returns the CPU time and memory of a process; zero if it has ended.
func used(pid int) (cpu time.Duration, memory uint64) {
	f, err := stat(pid)
	if err != nil {
		return 0, 0
	}
	if pages, err := strconv.ParseUint(f[24-firstStat], 10, 64); err == nil {
		memory = pages * uint64(os.Getpagesize())
	}
	return ticks(f[14-firstStat : 18-firstStat]), memory
}

// ticks adds up times in clock ticks, of which Linux reports a hundred a second
// on every machine.
func ticks(fields []string) time.Duration {
	var sum time.Duration
	for _, f := range fields {
		if n, err := strconv.ParseUint(f, 10, 64); err == nil {
			sum += time.Duration(n) * 10 * time.Millisecond
		}
	}
	return sum
}
