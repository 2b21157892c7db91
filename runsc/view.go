package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// viewFlag begins the first argument of a call that first makes a root out of
// directories of the host. The driver has put the process into a mount namespace
// of its own: nobody else sees the root, and it goes with its last process.
const viewFlag = "--view="

// view is a root: a small file system in the directory Root with Dirs, Links
// (name to target) and Binds (name to a directory of the host, read-only); or Tree
// instead, a directory of the host. In Tree and in the Binds that are in Over, too,
// the gofer can make the directories that it mounts on: they are in memory, and the
// host does not get them.
type view struct {
	Root  string
	Dirs  []string
	Links map[string]string
	Binds map[string]string
	Tree  string
	Over  []string
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
	if v.Tree != "" {
		return over(v.Tree, v.Root, v.Root)
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
		to := filepath.Join(v.Root, name)
		err := os.MkdirAll(to, 0o755)
		if err == nil && slices.Contains(v.Over, name) {
			err = over(from, to, filepath.Join(v.Root, "proc", name)) // where gVisor's own hides it
		} else if err == nil {
			err = bind(from, to)
		}
		if err != nil {
			return fmt.Errorf("show %s: %w", from, err)
		}
	}
	return nil
}

// over shows the directory from; what is made in it goes to the directory scratch.
func over(from, to, scratch string) error {
	for _, dir := range []string{"upper", "work"} {
		if err := os.MkdirAll(filepath.Join(scratch, dir), 0o755); err != nil {
			return err
		}
	}
	// By their descriptors: a path with a comma or a colon could not be said.
	var fds [2]int
	for i, dir := range []string{from, scratch} {
		fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return &os.PathError{Op: "open", Path: dir, Err: err}
		}
		defer unix.Close(fd) //nolint:errcheck // the mount stays
		fds[i] = fd
	}
	data := fmt.Sprintf("lowerdir=/proc/self/fd/%d,upperdir=/proc/self/fd/%d/upper,workdir=/proc/self/fd/%[2]d/work,userxattr", fds[0], fds[1])
	if err := unix.Mount("overlay", to, "overlay", unix.MS_NOSUID|unix.MS_NODEV, data); err != nil {
		return fmt.Errorf("mount an overlay of %s: %w", from, err)
	}
	return nil
}

// bind shows the directory from, and what is mounted below it, read-only.
func bind(from, to string) error {
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
