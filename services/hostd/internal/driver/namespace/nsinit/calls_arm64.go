//go:build linux

package nsinit

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_AARCH64

// archAllowed returns the calls that have another name on this architecture.
func archAllowed() []uint32 {
	return []uint32{
		unix.SYS_FSTATAT,
	}
}
