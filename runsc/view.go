package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// viewFlag begins the first argument of a call that first makes a root out of
// directories of the host. The driver has put the process into a mount namespace
// of its own: nobody else sees the root, and it goes with its last process.
const viewFlag = "--view="

// view is a root: a small file system in the directory Root with Dirs, Links
// (name to target) and Binds (name to a directory of the host, read-only).
type view struct {
	Root  string
	Dirs  []string
	Links map[string]string
	Binds map[string]string
}

// makeView makes the root that args ask for, if they do, and gives what is left of
// args.
func makeView(args []string) ([]string, error) {
	if len(args) < 2 {
		return args, nil
	}
	text, ok := strings.CutPrefix(args[1], viewFlag)
	if !ok {
		return args, nil
	}
	var v view
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		return nil, err
	}
	return append(args[:1:1], args[2:]...), v.make()
}

func (v *view) make() error {
	if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("keep mounts to ourselves: %w", err)
	}
	if err := unix.Mount("millrace", v.Root, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755,size=1m"); err != nil {
		return fmt.Errorf("mount %s: %w", v.Root, err)
	}
	for _, d := range v.Dirs {
		if err := os.MkdirAll(filepath.Join(v.Root, d), 0o755); err != nil {
			return err
		}
	}
	for name, to := range v.Links {
		if err := os.Symlink(to, filepath.Join(v.Root, name)); err != nil {
			return err
		}
	}
	for name, from := range v.Binds {
		if err := bind(from, filepath.Join(v.Root, name)); err != nil {
			return fmt.Errorf("bind %s: %w", from, err)
		}
	}
	return nil
}

// bind shows the directory from, and what is mounted below it, read-only.
func bind(from, to string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	tree, err := unix.OpenTree(unix.AT_FDCWD, from, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return err
	}
	defer unix.Close(tree) //nolint:errcheck // it is mounted, or nowhere
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr); err != nil {
		return err
	}
	return unix.MoveMount(tree, "", unix.AT_FDCWD, to, unix.MOVE_MOUNT_F_EMPTY_PATH)
}
