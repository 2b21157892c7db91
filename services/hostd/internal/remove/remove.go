// Package remove removes trees that others wrote, whatever these are like.
package remove

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Tree removes what is at path, if anything is; a link is not followed. It is not
// os.RemoveAll, which holds a descriptor a level and so can be made to use up all of
// hostd's by a tree of a hundred thousand levels, and which stops at a directory that its
// owner may not read: a sandbox makes such a one as it likes, and the kernel for an
// overlay. Directories are moved up to the tree's root instead of descended into, so that
// two descriptors are enough. Who writes to the tree meanwhile, by a descriptor that another
// sandbox has of it, can have it stay and nothing else.
func Tree(path string) error {
	err := unix.Unlink(path)
	if errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EPERM) { // which of them is the system's choice
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
	unix.Fchmod(int(top.Fd()), 0o700) //nolint:errcheck // what it hinders says so itself
	r := remover{top: top}
	// A directory that is emptied hangs its own into top, so one more pass
	// may be needed for each level, but no more.
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
	moved int // directories hung into top
}

// empty removes what is in dir, directories by way of remove, and returns how
// many entries it met.
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

// removeDir removes the directory name in parent, after hanging those in it
// into top.
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
	unix.Fchmod(fd, 0o700) //nolint:errcheck // what it hinders says so itself
	for {
		n, err := r.empty(dir, r.hang)
		if err != nil {
			return err
		}
		if n == 0 {
			return unix.Unlinkat(at, name, unix.AT_REMOVEDIR)
		}
	}
}

// hang moves the directory name in parent into top. Who is not root needs rights on the
// directory itself for that.
func (r *remover) hang(parent *os.File, name string) error {
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
