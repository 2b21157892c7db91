package output

import "golang.org/x/sys/unix"

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
