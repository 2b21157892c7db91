//go:build linux

package nsinit

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// takeVolumes gets hold of the volumes while the host's files can be seen. As root
// of the machine the driver hands them over, from fdVolumes on.
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

// ShowVolumes is what an error begins with where a volume's place is not one for it.
const ShowVolumes = "show volumes"

// showVolumes mounts the volumes at their places, which are the sandbox's own: what
// a link on the way leads to is in it.
func showVolumes(s *Spec) error {
	for i, v := range s.Volumes {
		if err := os.MkdirAll(v.Name, rootDir); err != nil {
			return err
		}
		if err := unix.MoveMount(s.volumes[i], "", unix.AT_FDCWD, v.Name, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return fmt.Errorf("%s: %w", v.Name, err)
		}
		unix.Close(s.volumes[i]) //nolint:errcheck // the mount stays
	}
	return nil
}
