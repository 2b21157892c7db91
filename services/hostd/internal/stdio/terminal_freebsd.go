package stdio

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// terminal makes a terminal.
func terminal() (ours, program int, err error) {
	fd, _, errno := unix.Syscall(unix.SYS_POSIX_OPENPT, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0, 0)
	if errno != 0 {
		return 0, 0, os.NewSyscallError("posix_openpt", errno)
	}
	ours = int(fd)
	n, err := unix.IoctlGetInt(ours, unix.TIOCGPTN)
	if err == nil {
		program, err = unix.Open("/dev/pts/"+strconv.Itoa(n), unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		unix.Close(ours)
		return 0, 0, err
	}
	return ours, program, nil
}
