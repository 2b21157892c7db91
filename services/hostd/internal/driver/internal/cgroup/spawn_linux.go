package cgroup

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// spawnIn makes a child that is started with attr start in the group at path; done must be
// called afterwards.
func spawnIn(attr *syscall.SysProcAttr, path string) (done func(), err error) {
	dir, err := os.OpenFile(path, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	attr.UseCgroupFD, attr.CgroupFD = true, int(dir.Fd())
	return func() { dir.Close() }, nil
}
