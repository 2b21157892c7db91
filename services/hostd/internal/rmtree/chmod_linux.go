package rmtree

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Chmod changes the mode of a name in a directory without following a link. It goes through
// /proc, because kernels before 6.6 have no system call for that.
func Chmod(at int, name string, mode uint32) error {
	fd, err := unix.Openat(at, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		return unix.ELOOP
	}
	return unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), mode)
}
