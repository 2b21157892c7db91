package templates

import (
	"os"

	"golang.org/x/sys/unix"
)

// Sync writes all of a directory's file system to the disk: a tree with its final name
// must have its files, also after a loss of power.
func Sync(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return os.NewSyscallError("syncfs", unix.Syncfs(int(d.Fd())))
}
