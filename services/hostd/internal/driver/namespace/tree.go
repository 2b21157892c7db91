//go:build linux

package namespace

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/namespace/nsinit"
)

// fromTree makes spec's root the template in s.Root.
func fromTree(s *driver.Spec, spec *nsinit.Spec) error {
	// Below it, links that lead out of the tree are not followed.
	tree, err := os.OpenRoot(s.Root)
	if err != nil {
		return kind.Wrap(kind.Unavailable, "create sandbox", string(s.ID), err)
	}
	defer tree.Close() //nolint:errcheck // it was only looked at
	shell := "/bin/sh"
	if _, err := tree.Stat("bin/bash"); err == nil {
		shell = "/bin/bash"
	}
	name := string(s.ID)
	spec.Tree, spec.Sudo = s.Root, s.Sudo
	spec.Env = environ(shell, s.Env)
	spec.Files = []nsinit.Text{
		{Name: "hostname", Body: name + "\n"},
		{Name: "hosts", Body: hosts(name)},
		{Name: "resolv.conf", Body: resolvConf},
	}
	return nil
}

// cloneTree is a mount of a template's tree that stands in no namespace: it goes
// away with its last descriptor.
func cloneTree(root string) (*os.File, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, root, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		return nil, &os.PathError{Op: "open_tree", Path: root, Err: err}
	}
	return os.NewFile(uintptr(fd), root), nil
}

// lend opens the mounts that the child is handed, and lists them as it inherits
// them, null in the place of one that there is not. A child without a uid range
// walks to them itself, and has no disk.
func lend(s *driver.Spec, base uint32, null, disk *os.File) (lent, inherited []*os.File, err error) {
	if base == 0 {
		return nil, nil, nil
	}
	below := ""
	if s.From != "" {
		below = filepath.Join(s.From, layersDir)
	}
	for _, path := range []string{s.Root, below} {
		f := null
		if path != "" {
			if f, err = cloneTree(path); err != nil {
				for _, l := range lent {
					l.Close()
				}
				return nil, nil, err
			}
			lent = append(lent, f)
		}
		inherited = append(inherited, f)
	}
	if disk != nil {
		inherited = append(inherited, disk)
	}
	return lent, inherited, nil
}

// mapOwners makes the files in the mounts that the child has inherited belong to
// the ids of its user namespace that have the same numbers.
func (c *child) mapOwners() error {
	if len(c.lent) == 0 {
		return nil
	}
	ns, err := os.Open(filepath.Join("/proc", strconv.Itoa(c.proc.PID), "ns/user"))
	if err != nil {
		return err
	}
	defer ns.Close() //nolint:errcheck // it was only lent
	attr := unix.MountAttr{
		Attr_set:  unix.MOUNT_ATTR_IDMAP | unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOATIME,
		Attr_clr:  unix.MOUNT_ATTR__ATIME,
		Userns_fd: uint64(ns.Fd()),
	}
	for _, f := range c.lent {
		err := unix.MountSetattr(int(f.Fd()), "", unix.AT_EMPTY_PATH, &attr)
		if errors.Is(err, unix.EINVAL) {
			err = fmt.Errorf("%w (the file system of %s cannot map owners: keep templates and snapshots on ext4, xfs, btrfs or tmpfs, on Linux 5.19 or newer)", err, f.Name())
		}
		if err != nil {
			return err
		}
	}
	return nil
}
