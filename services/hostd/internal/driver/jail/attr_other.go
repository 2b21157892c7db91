//go:build !linux && !freebsd

package jail

import "syscall"

func endWithHostd() *syscall.SysProcAttr { return nil }
