package shim

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// becomeReaper does nothing: orphans go to launchd, and what left the shim's tree
// outlives the sandbox.
func becomeReaper(bool) error { return nil }

// dieWithUs does nothing: there is no such request.
func dieWithUs(*syscall.SysProcAttr) {}

// openPTY makes a terminal.
func openPTY() (master, child int, err error) {
	master, err = unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, 0, err
	}
	var name [128]byte
	for _, req := range []struct{ nr, arg uintptr }{
		{unix.TIOCPTYGRANT, 0}, {unix.TIOCPTYUNLK, 0}, {unix.TIOCPTYGNAME, uintptr(unsafe.Pointer(&name[0]))},
	} {
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(master), req.nr, req.arg); errno != 0 {
			unix.Close(master)
			return 0, 0, errno
		}
	}
	child, err = unix.Open(unix.ByteSliceToString(name[:]), unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		unix.Close(master)
		return 0, 0, err
	}
	return master, child, nil
}
