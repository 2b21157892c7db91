//go:build linux

package nsinit

import (
	"errors"

	"golang.org/x/sys/unix"
)

// Kept returns the capabilities that the root of a sandbox has, over what belongs
// to the sandbox's own namespaces. They are Docker's, without those for
// device nodes, raw sockets and the audit log.
func Kept() []uintptr {
	return []uintptr{
		unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_FSETID, unix.CAP_KILL,
		unix.CAP_SETGID, unix.CAP_SETUID, unix.CAP_SETPCAP, unix.CAP_SETFCAP,
		unix.CAP_NET_BIND_SERVICE, unix.CAP_SYS_CHROOT,
	}
}

// Needed returns the capabilities that Init must be started with.
func Needed() []uintptr {
	return append(Kept(), unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN, unix.CAP_SYS_RESOURCE, unix.CAP_SYS_TIME)
}

// dropPrivileges leaves this thread, and all that it executes, only the capabilities in
// Kept, or none where the sandbox has no root or is a program, and no way to gain others;
// but where it may gain privileges, set-uid programs restore those in Kept.
func dropPrivileges(s *Spec) error {
	if !s.mayGain() {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return err
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return err
	}
	var set [2]uint32
	if s.HasRoot && s.Program.Path == "" {
		for _, c := range Kept() {
			set[c/32] |= 1 << (c % 32)
		}
	}
	for c := uintptr(0); c < 64; c++ {
		if set[c/32]&(1<<(c%32)) != 0 {
			continue
		}
		err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) { // beyond the kernel's last
			break
		}
		if err != nil {
			return err
		}
	}
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	data := [2]unix.CapUserData{
		{Effective: set[0], Permitted: set[0]},
		{Effective: set[1], Permitted: set[1]},
	}
	return unix.Capset(&head, &data[0])
}
