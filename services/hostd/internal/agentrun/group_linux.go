package agentrun

import "syscall"

// ownGroup starts a process in a group of its own, and ends it with the process that started it.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
