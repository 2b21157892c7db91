package templates

import (
	"os"

	"golang.org/x/sys/unix"
)

// syncAll has all of a directory's file system on the disk: a tree that has its
// name must have its files, also after a power loss.
func syncAll(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close() //nolint:errcheck // it was only lent
	return os.NewSyscallError("syncfs", unix.Syncfs(int(d.Fd())))
}
