package hostd

import (
	"os"

	"golang.org/x/sys/unix"
)

// room is how many bytes of the file system of a path anybody but root may still fill, and
// how many it has; 0 where it cannot be told.
func room(path string) (free, total uint64) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, 0
	}
	return st.Bavail * uint64(st.Bsize), st.Blocks * uint64(st.Bsize)
}

// nameless opens a file in dir that has no name from the beginning.
func nameless(dir string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "spool"), nil
}
