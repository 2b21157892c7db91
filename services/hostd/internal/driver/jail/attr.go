//go:build linux || freebsd

package jail

import "syscall"

// endWithHostd makes a program end with hostd: otherwise it could still create what the
// next run of hostd has just looked for.
func endWithHostd() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
