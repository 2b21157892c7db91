package tick

import (
	"io"
	"os"
	"runtime"
	"runtime/debug"

	"golang.org/x/sys/unix"
)

// Main is the child: it ticks until its standard input ends.
func Main() int {
	var cpus unix.CPUSet
	if err := unix.SchedGetaffinity(0, &cpus); err != nil {
		return 1
	}
	// The threads below never come back to the runtime, which could stop them for nothing.
	debug.SetGCPercent(-1)
	runtime.GOMAXPROCS(cpus.Count() + 1)
	for cpu, left := 0, cpus.Count(); left > 0; cpu++ {
		if cpus.IsSet(cpu) {
			left--
			go on(cpu)
		}
	}
	io.Copy(io.Discard, os.Stdin) //nolint:errcheck // the end is all that it says
	return 0
}

// on wakes up on a CPU each period, for ever. The calls go past the runtime, for which a
// thread that waits is one that may be done without.
func on(cpu int) {
	runtime.LockOSThread()
	var here unix.CPUSet
	here.Set(cpu)
	if unix.SchedSetaffinity(0, &here) != nil {
		return // the CPU has gone
	}
	every := unix.NsecToTimespec(period.Nanoseconds())
	for {
		sleep(&every)
	}
}
