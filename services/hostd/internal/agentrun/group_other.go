//go:build !linux

package agentrun

import "syscall"

// ownGroup starts a process in a group of its own.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
