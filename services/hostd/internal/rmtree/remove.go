// Package rmtree removes directory trees with untrusted content.
package rmtree

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Tree removes path, if it exists, without following a link. It replaces os.RemoveAll,
// which holds one descriptor per level, so that a tree of a hundred thousand levels uses up
// all of hostd's, and which stops at a directory without read permission: a sandbox can
// create both, and the kernel creates the latter for an overlay. Directories are moved up
// to the tree's root instead of descended into, so that two descriptors are enough. Another
// sandbox that writes to the tree meanwhile, through a descriptor that it has, can keep the
// tree from being removed, but nothing else.
func Tree(path string) error {
	err := unix.Unlink(path)
	if errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EPERM) { // the error depends on the system
		err = directory(path)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	return nil
}

func directory(path string) error {
	top, err := os.OpenFile(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrPermission) {
		if err = Chmod(unix.AT_FDCWD, path, 0o700); err == nil {
			top, err = os.OpenFile(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
		}
	}
	if err != nil {
		return err
	}
	defer top.Close()
	unix.Fchmod(int(top.Fd()), 0o700) //nolint:errcheck // later errors report it
	r := remover{top: top}
	// Emptying a directory moves its subdirectories into top, so each level may need one
	// more pass, but no more.
	for {
		n, err := r.empty(top, r.removeDir)
		if err != nil {
			return err
		}
		if n == 0 {
			return unix.Rmdir(path)
		}
	}
}

const batch = 512 // directory entries held at a time

type remover struct {
	top   *os.File
	moved int // number of directories moved into top
}

// empty removes the entries of dir, directories by calling remove, and returns how many
// entries it found.
func (r *remover) empty(dir *os.File, remove func(*os.File, string) error) (int, error) {
	if _, err := dir.Seek(0, io.SeekStart); err != nil {
		return 0, err
	}
	met := 0
	for {
		entries, err := dir.ReadDir(batch)
		for _, e := range entries {
			met++
			if e.IsDir() {
				err = remove(dir, e.Name())
			} else {
				err = unix.Unlinkat(int(dir.Fd()), e.Name(), 0)
			}
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return met, err
			}
		}
		if len(entries) < batch {
			if errors.Is(err, io.EOF) || errors.Is(err, fs.ErrNotExist) {
				err = nil
			}
			return met, err
		}
	}
}

// removeDir removes the directory name in parent, after moving its subdirectories into top.
func (r *remover) removeDir(parent *os.File, name string) error {
	at := int(parent.Fd())
	if err := unix.Unlinkat(at, name, unix.AT_REMOVEDIR); err == nil {
		return nil
	}
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.EACCES) {
		if err = Chmod(at, name, 0o700); err == nil {
			fd, err = unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		}
	}
	if err != nil {
		return err
	}
	dir := os.NewFile(uintptr(fd), name)
	defer dir.Close()
	unix.Fchmod(fd, 0o700) //nolint:errcheck // later errors report it
	for {
		n, err := r.empty(dir, r.moveUp)
		if err != nil {
			return err
		}
		if n == 0 {
			return unix.Unlinkat(at, name, unix.AT_REMOVEDIR)
		}
	}
}

// moveUp moves the directory name in parent into top. Without root that needs write
// permission on the directory itself.
func (r *remover) moveUp(parent *os.File, name string) error {
	at := int(parent.Fd())
	if err := unix.Unlinkat(at, name, unix.AT_REMOVEDIR); err == nil {
		return nil
	}
	for opened := false; ; {
		r.moved++
		err := unix.Renameat(at, name, int(r.top.Fd()), fmt.Sprintf("moved-%d", r.moved))
		if errors.Is(err, unix.EACCES) && !opened {
			if err := Chmod(at, name, 0o700); err != nil {
				return err
			}
			opened = true
			continue
		}
		if !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, unix.EEXIST) && !errors.Is(err, unix.ENOTDIR) {
			return err
		}
	}
}
