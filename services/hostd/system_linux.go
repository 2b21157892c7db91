package hostd

import (
	"os"

	"golang.org/x/sys/unix"
)

// diskFree returns the space of a path's file system; zero where it is unknown.
func diskFree(path string) disk {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return disk{}
	}
	return disk{st.Bavail * uint64(st.Bsize), st.Blocks * uint64(st.Bsize), st.Ffree, st.Files}
}

// openUnnamed opens a file in dir that never has a name.
func openUnnamed(dir string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "spool"), nil
}
