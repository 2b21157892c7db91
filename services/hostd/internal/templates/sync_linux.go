package templates

import (
	"os"

	"golang.org/x/sys/unix"
)

// Sync has all of a directory's file system on the disk: a tree that has its
// name must have its files, also after a power loss.
func Sync(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close() //nolint:errcheck // it was only lent
	return os.NewSyscallError("syncfs", unix.Syncfs(int(d.Fd())))
}
