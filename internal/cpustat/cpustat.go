// Package cpustat tells how long the machine's CPUs have worked and rested.
package cpustat

import (
	"os"
	"strconv"
	"strings"
	"time"
)

// Ticks is how many of the units in which Linux counts CPU time are a second.
const Ticks = 100

// Times are sums over all CPUs since the machine began, as exact as 10 ms.
type Times struct {
	Busy   time.Duration // what a hypervisor gave to somebody else counts, and a guest's time counts once
	Idle   time.Duration // with what was waited for a disk
	Stolen time.Duration // of Busy, what a hypervisor gave to somebody else
}

// Read reads them where the system tells as Linux does; the error is os.ReadFile's.
func Read() (Times, error) {
	b, err := os.ReadFile("/proc/stat")
	return parse(string(b)), err
}

// Since is what came to them since then.
func (t Times) Since(then Times) Times {
	return Times{Busy: t.Busy - then.Busy, Idle: t.Idle - then.Idle, Stolen: t.Stolen - then.Stolen}
}

// StolenPart is the part of the time that was stolen, from 0 to 1; 0 where none has passed.
func (t Times) StolenPart() float64 {
	return t.Stolen.Seconds() / max(t.Busy+t.Idle, 1).Seconds()
}

// parse sums up the first line of a /proc/stat.
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
