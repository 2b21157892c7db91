package children

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// awaitEndedChild waits until a child has ended, without reaping it. ECHILD: there is no child.
func awaitEndedChild() (pid int, err error) {
	var info struct { // siginfo_t
		signo, errno, code int32
		_                  [unsafe.Sizeof(uintptr(0)) - 4]byte
		pid                int32
		_                  [112]byte
	}
	_, _, errno := unix.Syscall6(unix.SYS_WAITID, unix.P_ALL, 0, uintptr(unsafe.Pointer(&info)), unix.WEXITED|unix.WNOWAIT, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(info.pid), nil
}
