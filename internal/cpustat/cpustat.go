// Package cpustat reads the busy, idle and stolen time of the machine's CPUs.
package cpustat

import (
	"os"
	"strconv"
	"strings"
	"time"
)

// Ticks is the number of Linux's units of CPU time in a second.
const Ticks = 100

// Times are sums over all CPUs since boot, with a resolution of 10 ms.
type Times struct {
	Busy   time.Duration // time in use, including Stolen; a guest's time counts once
	Idle   time.Duration // idle time, including waits for a disk
	Stolen time.Duration // part of Busy that a hypervisor gave to other machines
}

// Read reads the times from /proc/stat; the error is from os.ReadFile.
func Read() (Times, error) {
	b, err := os.ReadFile("/proc/stat")
	return parse(string(b)), err
}

// Since returns the difference between t and the earlier then.
func (t Times) Since(then Times) Times {
	return Times{Busy: t.Busy - then.Busy, Idle: t.Idle - then.Idle, Stolen: t.Stolen - then.Stolen}
}

// StolenPart returns the stolen fraction of the time, from 0 to 1; 0 if t is zero.
func (t Times) StolenPart() float64 {
	return t.Stolen.Seconds() / max(t.Busy+t.Idle, 1).Seconds()
}

// parse sums the first line of /proc/stat.
func parse(stat string) (t Times) {
	line, _, _ := strings.Cut(stat, "\n")
	for i, f := range strings.Fields(strings.TrimPrefix(line, "cpu ")) {
		const idle, iowait, steal, guest = 3, 4, 7, 8
		n, err := strconv.Atoi(f)
		if err != nil || i >= guest {
			break
		}
		switch d := time.Duration(n) * time.Second / Ticks; i {
		case idle, iowait:
			t.Idle += d
		case steal:
			t.Stolen = d
			fallthrough
		default:
			t.Busy += d
		}
	}
	return t
}
