package shim

import (
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// maxString returns the maximum length in bytes of one argument or variable, 0 for no
// limit: the kernel's MAX_ARG_STRLEN is 32 pages, with the final NUL.
func maxString() int { return 32*os.Getpagesize() - 1 }

// closeInherited sets close-on-exec on all inherited descriptors from first on.
func closeInherited(first uint) {
	unix.CloseRange(first, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) //nolint:errcheck // drivers on older kernels pass no other descriptors
}

// unreadBytes returns how many bytes wait in a pipe or terminal.
func unreadBytes(fd int) (int, error) { return unix.IoctlGetInt(fd, unix.TIOCINQ) }

// setPipeSize sets the capacity of a pipe.
func setPipeSize(fd, n int) {
	unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, n) //nolint:errcheck // smaller is slower, not wrong
}

// punchHole frees the disk space of a part of a file.
func punchHole(fd int, at, size int64) error {
	return unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at, size)
}
