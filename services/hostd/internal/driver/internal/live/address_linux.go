package live

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// address returns the address of a socket in dir through the directory's descriptor,
// since a unix address holds 108 bytes and a data directory may be deeper than that.
func address(dir, name string) (addr string, done func(), err error) {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", nil, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", fd, name), func() { unix.Close(fd) }, nil
}
