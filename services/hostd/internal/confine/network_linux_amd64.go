package confine

import "golang.org/x/sys/unix"

const (
	auditArch = unix.AUDIT_ARCH_X86_64
	maxNumber = 0x40000000 // the numbers of x32 begin here
)
