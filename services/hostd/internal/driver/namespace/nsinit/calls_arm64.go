//go:build linux

package nsinit

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_AARCH64

// archAllowed are the calls that this architecture spells its own way.
func archAllowed() []uint32 {
	return []uint32{
		unix.SYS_FSTATAT,
	}
}
