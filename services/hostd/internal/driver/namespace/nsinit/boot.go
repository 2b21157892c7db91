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

// Of the time since the kernel was booted, and of the name of that boot, a sandbox has
// its own: it is as if its first process had booted a machine.

// timeMajor and timeMinor are the first release of Linux that moves a process into the
// time namespace of its children when it executes a program. Older ones refuse to make
// threads and children for a program that is between the two.
const timeMajor, timeMinor = 6, 1

// newTime has the clocks that count from the boot begin at 0 when the shim is executed.
// Where the kernel cannot do that, they go on to be the host's.
func newTime(*Spec) error {
	if !since(timeMajor, timeMinor) {
		return nil
	}
	err := unix.Unshare(unix.CLONE_NEWTIME)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSPC) {
		return nil // the kernel has none, or allows no more of them
	}
	if err != nil {
		return err
	}
	var monotonic, boot unix.Timespec
	if err := errors.Join(unix.ClockGettime(unix.CLOCK_MONOTONIC, &monotonic), unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot)); err != nil {
		return err
	}
	// Whole seconds downwards: no clock may begin below 0.
	offsets := fmt.Sprintf("monotonic %d 0\nboottime %d 0\n", -monotonic.Sec, -boot.Sec)
	err = owning(func() error { // the file is the thread's that made the namespace
		return os.WriteFile(fmt.Sprintf("/proc/%d/timens_offsets", unix.Gettid()), []byte(offsets), 0)
	})
	if errors.Is(err, fs.ErrPermission) {
		return nil // a container in which nobody may: the clocks are the host's
	}
	return err
}

// owning calls do while the files that /proc has of this process belong to it. They are
// root's of the machine while it must not be dumped. Nothing else is in the sandbox yet.
func owning(do func() error) error {
	if dumpable, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0); err != nil || dumpable == 1 {
		return errors.Join(err, do())
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0); err != nil {
		return err
	}
	return errors.Join(do(), unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0))
}

// since reports whether the kernel is of a release or a later one.
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
	ownBootID  = "/dev/.boot_id" // for a moment
)

// newBootID puts a name of this sandbox's boot in the place of the machine's.
func newBootID(*Spec) error {
	var b [16]byte
	rand.Read(b[:])                             //nolint:errcheck // crypto/rand.Read never fails since Go 1.24
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
