//go:build freebsd || darwin

package shim

import (
	"errors"

	"golang.org/x/sys/unix"
)

// maxString returns 0: only all arguments and variables together have a limit.
func maxString() int { return 0 }

// closeInherited sets close-on-exec on all inherited descriptors from first on.
func closeInherited(first uint) {
	for fd := int(first); fd < mostInherited; fd++ {
		unix.CloseOnExec(fd)
	}
}

// mostInherited is more than any driver passes.
const mostInherited = 64

// unreadBytes returns how many bytes wait in a pipe or terminal.
func unreadBytes(fd int) (int, error) { return unix.IoctlGetInt(fd, fionread) }

const fionread = 0x4004667f // FIONREAD

// setPipeSize does nothing: pipes grow by themselves here.
func setPipeSize(int, int) {}

// punchHole is unsupported: the file is truncated when all of it is stored.
func punchHole(int, int64, int64) error { return errors.ErrUnsupported }
