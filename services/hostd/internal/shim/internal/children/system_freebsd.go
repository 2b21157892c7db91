package children

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Of sys/procctl.h.
const (
	pPID        = 0 // P_PID: the id is a pid
	reapAcquire = 2 // PROC_REAP_ACQUIRE
)

// becomeReaper makes the shim the reaper of orphans. Pid 1 is that already.
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

// SetDeathSignal makes a child die when the shim does.
func SetDeathSignal(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
