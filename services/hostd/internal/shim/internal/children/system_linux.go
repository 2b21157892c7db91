package children

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// becomeReaper makes the shim the reaper of orphans. Pid 1 is that already.
func becomeReaper(pid1 bool) error {
	if pid1 {
		return nil
	}
	return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
}

// SetDeathSignal makes a child die when the shim does.
func SetDeathSignal(attr *syscall.SysProcAttr) {
	// The runtime never ends the thread that forks, so the signal comes with the end of the
	// shim and not before.
	attr.Pdeathsig = syscall.SIGKILL
}
