//go:build !linux && !freebsd

package jail

import "syscall"

func dieWithUs() *syscall.SysProcAttr { return nil }
