package confine

import "golang.org/x/sys/unix"

const (
	auditArch = unix.AUDIT_ARCH_AARCH64
	maxNumber = 1 << 31 // no other numbers exist
)
