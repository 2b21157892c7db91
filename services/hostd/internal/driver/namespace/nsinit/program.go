//go:build linux

package nsinit

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// A program that is executed in the shim's stead has a root that shows Spec.Shown,
// read-only, and of /proc its own process, through which it opens the descriptors that it
// is handed. It has no file to write to and no capability.

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

// showFiles shows the host's files, and makes what else is mounted on.
func showFiles(s *Spec) error {
	for _, path := range append([]string{"/proc/", "/dev/"}, s.Shown...) {
		if err := showFile(path); err != nil {
			return err
		}
	}
	if s.Device != "" && !s.HasRoot {
		if err := touch(memory + s.Device); err != nil {
			return err
		}
	}
	return restrict(memory, unix.AT_RECURSIVE, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
}

// showFile shows a file or a directory of the host's; of one whose name ends in a slash
// it makes the directory alone.
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

// showDevice lets the program have its device. The uid of a sandbox has no right to the
// host's: as root of the machine the driver hands over a directory with one.
func showDevice(s *Spec) error {
	switch {
	case s.Device == "":
		return nil
	case s.HasRoot:
		return unix.MoveMount(fdTree, "", unix.AT_FDCWD, memory+filepath.Dir(s.Device), unix.MOVE_MOUNT_F_EMPTY_PATH)
	}
	return unix.Mount(s.Device, memory+s.Device, "", unix.MS_BIND, "")
}
