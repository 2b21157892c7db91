//go:build linux

package nsinit

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// A program that is executed instead of the shim has a root that contains Spec.Program.Shown,
// read-only, and of /proc its own process, through which it opens the descriptors that it
// inherits. It has no file to write to and no capability.

// programSteps build such a root, in memory.
var programSteps = []step{
	{"prepare mounts", ownMemory},
	{"show files", showFiles},
	{"mount /proc", func(*Spec) error {
		return unix.Mount("proc", memory+"/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "subset=pid")
	}},
	{"show the device", showDevice},
	{"enter root", func(*Spec) error { return unix.Chdir(memory) }},
	{"pivot root", pivot},
}

// showFiles mounts the host's files, and makes the other mount points.
func showFiles(s *Spec) error {
	for _, path := range append([]string{"/proc/", "/dev/"}, s.Program.Shown...) {
		if err := showFile(path); err != nil {
			return err
		}
	}
	if s.Program.Device != "" && !s.HasRoot {
		if err := touch(memory + s.Program.Device); err != nil {
			return err
		}
	}
	return restrict(memory, unix.AT_RECURSIVE, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
}

// showFile mounts a file or a directory of the host's; for a name that ends in a slash
// it only makes the directory.
func showFile(path string) error {
	to := memory + path
	if err := os.MkdirAll(filepath.Dir(to), rootDir); err != nil || path[len(path)-1] == '/' {
		return err
	}
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	if st.IsDir() {
		err = os.Mkdir(to, rootDir)
	} else {
		err = touch(to)
	}
	if err == nil {
		err = unix.Mount(path, to, "", unix.MS_BIND, "")
	}
	if err != nil {
		return &os.PathError{Op: "bind", Path: path, Err: err}
	}
	return nil
}

// showDevice gives the program its device. The uid of a sandbox has no permission for the
// host's: if hostd is root of the machine, the driver passes a directory with a copy of it.
func showDevice(s *Spec) error {
	switch {
	case s.Program.Device == "":
		return nil
	case s.HasRoot:
		return unix.MoveMount(fdTree, "", unix.AT_FDCWD, memory+filepath.Dir(s.Program.Device), unix.MOVE_MOUNT_F_EMPTY_PATH)
	}
	return unix.Mount(s.Program.Device, memory+s.Program.Device, "", unix.MS_BIND, "")
}
