//go:build !linux

package rmtree

import "golang.org/x/sys/unix"

// Chmod changes the mode of a name in a directory without following a link.
func Chmod(at int, name string, mode uint32) error {
	return unix.Fchmodat(at, name, mode, unix.AT_SYMLINK_NOFOLLOW)
}
