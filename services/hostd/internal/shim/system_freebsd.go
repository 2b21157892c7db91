package shim

import (
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Of sys/procctl.h.
const (
	pPID        = 0 // P_PID: the id is a pid
	reapAcquire = 2 // PROC_REAP_ACQUIRE
)

// becomeReaper makes orphans ours: pid 1 has them anyway.
func becomeReaper(pid1 bool) error {
	if pid1 {
		return nil
	}
	_, _, errno := unix.Syscall6(unix.SYS_PROCCTL, pPID, uintptr(os.Getpid()), reapAcquire, 0, 0, 0)
	if errno != 0 {
		return os.NewSyscallError("procctl", errno)
	}
	return nil
}

// dieWithUs has a child end when the shim does.
func dieWithUs(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// openPTY makes a terminal.
func openPTY() (master, child int, err error) {
	fd, _, errno := unix.Syscall(unix.SYS_POSIX_OPENPT, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0, 0)
	if errno != 0 {
		return 0, 0, os.NewSyscallError("posix_openpt", errno)
	}
	master = int(fd)
	n, err := unix.IoctlGetInt(master, unix.TIOCGPTN)
	if err == nil {
		child, err = unix.Open("/dev/pts/"+strconv.Itoa(n), unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		unix.Close(master)
		return 0, 0, err
	}
	return master, child, nil
}
