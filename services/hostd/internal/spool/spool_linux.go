package spool

import (
	"os"

	"golang.org/x/sys/unix"
)

// openUnnamed opens a file in dir that never has a name.
func openUnnamed(dir string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "spool"), nil
}
