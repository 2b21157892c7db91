package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// viewFlag begins the first argument of a call that first builds a root from
// directories of the host. The driver has put the process into a mount namespace
// of its own: the root is visible only there, and ends with the namespace's last process.
const viewFlag = "--view="

// view is a root: a small file system in the directory Root with Dirs, Links (name to
// target) and Binds: by their names, directories of the host, read-only, each preceded by the
// directories of a snapshot's layers over it. Below are the directories of layers over the
// root; with Tree the last one is the template's tree, and the small file system is not
// used. Where there is more than one directory, in Tree and in the Binds that are in Over,
// the gofer can make mount points: they are in memory, and do not reach the host. The last
// directories of the Binds that are in Host are veiled.
type view struct {
	Root  string
	Dirs  []string
	Links map[string]string
	Binds map[string][]string
	Over  []string
	Host  []string
	Below []string
	Tree  bool
}

// makeView builds the root that args describe, if they do, and returns the other
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
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("millrace", v.Root, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755,size=1m"); err != nil {
		return fmt.Errorf("mount %s: %w", v.Root, err)
	}
	memory, err := os.Open(v.Root) // usable also when something is mounted over it
	if err != nil {
		return err
	}
	defer memory.Close()
	// A directory that gVisor mounts its own procfs over.
	scratch := fmt.Sprintf("/proc/self/fd/%d/proc", memory.Fd())
	if err := os.Mkdir(scratch, 0o755); err != nil {
		return err
	}
	if v.Tree {
		return mountOverlay(v.Below, v.Root, scratch+"/root")
	}
	if err := v.skeleton(); err != nil {
		return err
	}
	var bare string
	for name, from := range v.Binds {
		veiled := slices.Contains(v.Host, name)
		err := v.show(name, scratch, veiled)
		if err != nil && veiled {
			// Without a veil is better than not at all; the driver reports it.
			bare, err = err.Error(), v.show(name, scratch, false)
		}
		if err != nil {
			return fmt.Errorf("mount %q: %w", from, err)
		}
	}
	if len(v.Host) == 0 {
		return nil
	}
	return os.WriteFile(veilFile, []byte(bare), 0o600)
}

// show mounts one of the Binds.
func (v *view) show(name, scratch string, veiled bool) error {
	from, to, scratch := v.Binds[name], filepath.Join(v.Root, name), filepath.Join(scratch, name)
	last := len(from) - 1
	alone := last == 0 && !slices.Contains(v.Over, name)
	switch {
	case alone && veiled:
		return veilAll(from[0], to, scratch)
	case alone:
		return bind(from[0], to)
	case veiled:
		host := filepath.Join(scratch, "host")
		if err := os.MkdirAll(host, 0o755); err != nil {
			return err
		}
		if err := veil(from[last], host, scratch); err != nil {
			return err
		}
		from = append(from[:last:last], host)
	}
	return mountOverlay(from, to, scratch)
}

// skeleton makes the root's own files, below the layers of a snapshot.
func (v *view) skeleton() error {
	in := v.Root
	if len(v.Below) > 0 {
		in = filepath.Join(v.Root, "proc", "skeleton")
	}
	dirs := slices.Concat(v.Dirs, slices.Collect(maps.Keys(v.Binds)))
	for _, d := range dirs {
		if err := os.MkdirAll(filepath.Join(in, d), 0o755); err != nil {
			return err
		}
	}
	for name, to := range v.Links {
		if err := os.Symlink(to, filepath.Join(in, name)); err != nil {
			return err
		}
	}
	if len(v.Below) == 0 {
		return nil
	}
	return mountOverlay(append(v.Below, in), v.Root, filepath.Join(v.Root, "proc", "root"))
}

// mountOverlay mounts an overlay of directories, the first one uppermost; changes go to the
// directory scratch.
func mountOverlay(from []string, to, scratch string) error {
	for _, dir := range []string{"upper", "work"} {
		if err := os.MkdirAll(filepath.Join(scratch, dir), 0o755); err != nil {
			return err
		}
	}
	// By their descriptors: a path with a comma or a colon could not be expressed.
	var names []string
	for _, dir := range append([]string{scratch}, from...) {
		fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return &os.PathError{Op: "open", Path: dir, Err: err}
		}
		defer unix.Close(fd)
		names = append(names, fmt.Sprintf("/proc/self/fd/%d", fd))
	}
	data := fmt.Sprintf("lowerdir=%s,upperdir=%s/upper,workdir=%[2]s/work,userxattr", strings.Join(names[1:], ":"), names[0])
	if err := unix.Mount("overlay", to, "overlay", unix.MS_NOSUID|unix.MS_NODEV, data); err != nil {
		return fmt.Errorf("mount an overlay of %q: %w", from, err)
	}
	return nil
}

// bind mounts the directory from, and the mounts below it, read-only.
func bind(from, to string) error {
	tree, err := unix.OpenTree(unix.AT_FDCWD, from, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr); err != nil {
		return err
	}
	return unix.MoveMount(tree, "", unix.AT_FDCWD, to, unix.MOVE_MOUNT_F_EMPTY_PATH)
}
