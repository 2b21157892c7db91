//go:build linux

package nsinit

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// takeVolumes opens the volumes while the host's files are visible. If hostd is root
// of the machine, the driver passes them, from fdVolumes on.
func takeVolumes(s *Spec) error {
	for i, v := range s.Volumes {
		fd := fdVolumes + i
		if s.HasRoot {
			unix.CloseOnExec(fd)
			s.volumes = append(s.volumes, fd)
			continue
		}
		fd, err := unix.OpenTree(unix.AT_FDCWD, v.Body, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW)
		if err != nil {
			return &os.PathError{Op: "open_tree", Path: v.Body, Err: err}
		}
		s.volumes = append(s.volumes, fd)
		attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOSUID}
		if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &attr); err != nil {
			return err
		}
	}
	return nil
}

// ShowVolumes is the prefix of the error of a mount point that is not a directory.
const ShowVolumes = "show volumes"

// showVolumes mounts the volumes at their mount points inside the sandbox: a link on the
// way leads only to files in it.
func showVolumes(s *Spec) error {
	for i, v := range s.Volumes {
		if err := os.MkdirAll(v.Name, rootDir); err != nil {
			return err
		}
		if err := unix.MoveMount(s.volumes[i], "", unix.AT_FDCWD, v.Name, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return fmt.Errorf("%s: %w", v.Name, err)
		}
		unix.Close(s.volumes[i])
	}
	return nil
}
