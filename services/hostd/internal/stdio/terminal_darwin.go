package stdio

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// terminal makes a terminal.
func terminal() (ours, program int, err error) {
	ours, err = unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, 0, err
	}
	var name [128]byte
	for _, req := range []struct{ nr, arg uintptr }{
		{unix.TIOCPTYGRANT, 0}, {unix.TIOCPTYUNLK, 0}, {unix.TIOCPTYGNAME, uintptr(unsafe.Pointer(&name[0]))},
	} {
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(ours), req.nr, req.arg); errno != 0 {
			unix.Close(ours)
			return 0, 0, errno
		}
	}
	program, err = unix.Open(unix.ByteSliceToString(name[:]), unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		unix.Close(ours)
		return 0, 0, err
	}
	return ours, program, nil
}
