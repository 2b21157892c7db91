//go:build linux

package nsinit

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// A sandbox has its own time since boot, and its own boot id, as if its first process had
// booted a machine.

// timeMajor and timeMinor are the first release of Linux that moves a process into the
// time namespace of its children when it executes a program. Older ones refuse to create
// threads and children in a program that is between the two.
const timeMajor, timeMinor = 6, 1

// newTime makes the clocks that count from boot start at 0 when the shim is executed.
// Where the kernel does not support that, they remain the host's.
func newTime(*Spec) error {
	if !since(timeMajor, timeMinor) {
		return nil
	}
	err := unix.Unshare(unix.CLONE_NEWTIME)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSPC) {
		return nil // the kernel has no time namespaces, or permits no more of them
	}
	if err != nil {
		return err
	}
	var monotonic, boot unix.Timespec
	if err := errors.Join(unix.ClockGettime(unix.CLOCK_MONOTONIC, &monotonic), unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot)); err != nil {
		return err
	}
	// Whole seconds, rounded down: no clock may start below 0.
	offsets := fmt.Sprintf("monotonic %d 0\nboottime %d 0\n", -monotonic.Sec, -boot.Sec)
	err = withOwnProc(func() error { // the file belongs to the thread that made the namespace
		return os.WriteFile(fmt.Sprintf("/proc/%d/timens_offsets", unix.Gettid()), []byte(offsets), 0)
	})
	if errors.Is(err, fs.ErrPermission) {
		return nil // a container that does not permit it: the clocks are the host's
	}
	return err
}

// withOwnProc calls do while this process's files in /proc belong to it. They belong to root
// of the machine while the process is not dumpable. No other process is in the sandbox yet.
func withOwnProc(do func() error) error {
	if dumpable, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0); err != nil || dumpable == 1 {
		return errors.Join(err, do())
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0); err != nil {
		return err
	}
	return errors.Join(do(), unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0))
}

// since reports whether the kernel is of that release or a later one.
func since(major, minor int) bool {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return false
	}
	var a, b int
	if _, err := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &a, &b); err != nil {
		return false
	}
	return a > major || a == major && b >= minor
}

const (
	bootIDFile = "/proc/sys/kernel/random/boot_id"
	ownBootID  = "/dev/.boot_id" // exists for a moment
)

// newBootID replaces the machine's boot id by one of the sandbox's own.
func newBootID(*Spec) error {
	var b [16]byte
	rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80 // a random UUID
	text := fmt.Sprintf("%x-%x-%x-%x-%x\n", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
	if err := os.WriteFile(ownBootID, []byte(text), 0o444); err != nil {
		return err
	}
	err := unix.Mount(ownBootID, bootIDFile, "", unix.MS_BIND, "")
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // this kernel has no such file
	}
	return errors.Join(err, os.Remove(ownBootID))
}
