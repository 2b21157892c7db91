package schedtick

import (
	"io"
	"os"
	"runtime"
	"runtime/debug"

	"golang.org/x/sys/unix"
)

// Main runs the child: it ticks until its standard input ends.
func Main() int {
	var cpus unix.CPUSet
	if err := unix.SchedGetaffinity(0, &cpus); err != nil {
		return 1
	}
	// The threads below never return to the runtime, which would try to stop them.
	debug.SetGCPercent(-1)
	runtime.GOMAXPROCS(cpus.Count() + 1)
	for cpu, left := 0, cpus.Count(); left > 0; cpu++ {
		if cpus.IsSet(cpu) {
			left--
			go wakeOn(cpu)
		}
	}
	io.Copy(io.Discard, os.Stdin) //nolint:errcheck // only the end matters
	return 0
}

// wakeOn wakes up on a CPU every period, forever. The system calls bypass the runtime, which
// would otherwise replace a waiting thread.
func wakeOn(cpu int) {
	runtime.LockOSThread()
	var here unix.CPUSet
	here.Set(cpu)
	if unix.SchedSetaffinity(0, &here) != nil {
		return // the CPU is gone
	}
	every := unix.NsecToTimespec(period.Nanoseconds())
	for {
		sleep(&every)
	}
}
