//go:build freebsd || darwin

package output

import (
	"errors"

	"golang.org/x/sys/unix"
)

// unreadBytes returns how many bytes wait in a pipe or terminal.
func unreadBytes(fd int) (int, error) { return unix.IoctlGetInt(fd, fionread) }

const fionread = 0x4004667f // FIONREAD

// setPipeSize does nothing: pipes grow by themselves here.
func setPipeSize(int, int) {}

// punchHole is unsupported: the file is truncated when all of it is stored.
func punchHole(int, int64, int64) error { return errors.ErrUnsupported }
