package shim

import (
	"math"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxString returns the maximum length in bytes of one argument or variable: the
// kernel's MAX_ARG_STRLEN is 32 pages, with the final NUL. 0: there is no limit.
func maxString() int { return 32*os.Getpagesize() - 1 }

// becomeReaper makes orphans ours: pid 1 has them anyway.
func becomeReaper(pid1 bool) error {
	if pid1 {
		return nil
	}
	return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
}

// dieWithUs has a child end when the shim does.
func dieWithUs(attr *syscall.SysProcAttr) {
	// The runtime never ends the thread that forks, so that this is the death of
	// the shim and of nothing less.
	attr.Pdeathsig = syscall.SIGKILL
}

// closeInherited sees to it that no child gets a descriptor from first on that we
// inherited.
func closeInherited(first uint) {
	unix.CloseRange(first, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) //nolint:errcheck // an older kernel has drivers that hand in nothing else
}

// unread is how many bytes wait in a pipe or terminal.
func unread(fd int) (int, error) { return unix.IoctlGetInt(fd, unix.TIOCINQ) }

// setPipeSize gives a pipe more room.
func setPipeSize(fd, n int) {
	unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, n) //nolint:errcheck // smaller is slower, not wrong
}

// punchHole gives the middle of a file back to the disk.
func punchHole(fd int, at, size int64) error {
	return unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at, size)
}
