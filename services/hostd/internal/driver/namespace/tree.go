//go:build linux

package namespace

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/layers"
	"github.com/millrace/millrace/services/hostd/internal/driver/namespace/nsinit"
)

// fromTree makes the template in s.Root the root of spec.
func fromTree(s *driver.Spec, spec *nsinit.Spec) error {
	// Links below it that lead out of the tree are not followed.
	tree, err := os.OpenRoot(s.Root)
	if err != nil {
		return kind.Wrap(kind.Unavailable, "create sandbox", string(s.ID), err)
	}
	defer tree.Close()
	shell := "/bin/sh"
	if _, err := tree.Stat("bin/bash"); err == nil {
		shell = "/bin/bash"
	}
	spec.Tree, spec.Sudo = s.Root, s.Sudo
	spec.Env = environ(shell, s.Env)
	spec.Files = append(nameFiles(s.HostName()), nsinit.File{Name: "etc/resolv.conf", Body: resolvConf})
	return nil
}

// cloneTree returns a mount of a template's tree that is in no namespace: it ends
// with its last descriptor.
func cloneTree(root string) (*os.File, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, root, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		return nil, &os.PathError{Op: "open_tree", Path: root, Err: err}
	}
	return os.NewFile(uintptr(fd), root), nil
}

// inheritedMounts are the mounts that a child inherits: read-only ones, and
// volumes.
type inheritedMounts struct{ below, volumes []*os.File }

func (l *inheritedMounts) close() {
	for _, f := range slices.Concat(l.below, l.volumes) {
		f.Close()
	}
}

// openMounts opens the mounts that the child inherits, and lists them in the order of its
// descriptors, with null in place of missing ones. A child without a uid range
// opens them itself, and has no disk. The caller closes what openMounts opened,
// also on error.
func openMounts(s *driver.Spec, base uint32, null, disk *os.File) (l inheritedMounts, inherited []*os.File, err error) {
	if base == 0 {
		return l, nil, nil
	}
	below := ""
	if s.From != "" {
		below = layers.Dir(s.From)
	}
	for _, path := range []string{s.Root, below} {
		f := null
		if path != "" {
			if f, err = cloneTree(path); err != nil {
				return l, nil, err
			}
			l.below = append(l.below, f)
		}
		inherited = append(inherited, f)
	}
	if disk == nil {
		disk = null
	}
	inherited = append(inherited, disk)
	for _, v := range s.Volumes {
		f, err := cloneTree(v.Source)
		if err != nil {
			return l, nil, err
		}
		l.volumes = append(l.volumes, f)
		inherited = append(inherited, f)
	}
	return l, inherited, nil
}

// Attributes of a child's mounts, besides the owner mapping.
const (
	onlyRead  = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOATIME
	onlyFiles = unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOSUID
)

// mapOwners maps the owners of files in the mounts that the child has inherited to
// the ids of its user namespace with the same numbers.
func (c *child) mapOwners() error {
	if len(c.mounts.below) == 0 && len(c.mounts.volumes) == 0 {
		return nil
	}
	ns, err := os.Open(filepath.Join("/proc", strconv.Itoa(c.Proc.PID), "ns/user"))
	if err != nil {
		return err
	}
	defer ns.Close()
	for _, f := range c.mounts.below {
		if err := mapTo(ns, f, onlyRead, unix.MOUNT_ATTR__ATIME); err != nil {
			return err
		}
	}
	for _, f := range c.mounts.volumes {
		if err := mapTo(ns, f, onlyFiles, 0); err != nil {
			return err
		}
	}
	return nil
}

// mapTo sets the owner mapping and attributes of a mount.
func mapTo(ns, f *os.File, set, unset uint64) error {
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP | set, Attr_clr: unset, Userns_fd: uint64(ns.Fd())}
	err := unix.MountSetattr(int(f.Fd()), "", unix.AT_EMPTY_PATH, &attr)
	if errors.Is(err, unix.EINVAL) {
		err = fmt.Errorf("%w (the file system of %s cannot map owners: keep templates, snapshots and volumes on ext4, xfs, btrfs or tmpfs, on Linux 5.19 or newer)", err, f.Name())
	}
	return err
}
