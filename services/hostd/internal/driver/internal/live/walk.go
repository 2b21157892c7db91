package live

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/hostd/internal/remove"
)

// walker goes through a tree that a sandbox wrote, with a descriptor or two at
// any depth: it goes up again by "..". Nobody may move directories meanwhile.
type walker struct {
	dir   *os.File
	depth []frame
	// force: directories that their owner, who we are, may not read are made
	// readable as long as we are in them.
	force bool
	mode  uint32 // of dir, before it was forced
	held  int    // bytes of what is remembered of the tree
}

const batch = 512 // directory entries held at a time

// What is remembered of a tree is bounded: the directories that are still to be entered,
// and the files with several names.
const (
	maxHeld  = 128 << 20
	heldEach = 64 // besides its name
)

// hold fails where more would be remembered than may be.
func (w *walker) hold(name string) error {
	if w.held += heldEach + len(name); w.held > maxHeld {
		return kind.New(kind.Exhausted, "read a tree", "", "it has too many directories, or files with several names")
	}
	return nil
}

func (w *walker) drop(name string) { w.held -= heldEach + len(name) }

// frame is a directory on the way down.
type frame struct {
	dirs []string // directories in it that were not entered yet
	id   devIno
	mode uint32 // before it was forced
}

type devIno struct{ dev, ino uint64 }

func inode(st *unix.Stat_t) devIno {
	return devIno{uint64(st.Dev), st.Ino} //nolint:unconvert // the types differ between systems
}

// errMoved says that ".." led elsewhere than back.
var errMoved = errors.New("a directory was moved while it was read")

const dirFlags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC

func openDir(at int, name string) (*os.File, error) {
	fd, err := unix.Openat(at, name, dirFlags, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// scan calls f with everything in the directory that w is in, and notes the
// directories for next.
func (w *walker) scan(ctx context.Context, f func(name string, st *unix.Stat_t) error) error {
	var self unix.Stat_t
	if err := unix.Fstat(int(w.dir.Fd()), &self); err != nil {
		return err
	}
	fr := frame{id: inode(&self), mode: w.mode}
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		names, err := w.dir.Readdirnames(batch)
		for _, name := range names {
			var st unix.Stat_t
			if err := unix.Fstatat(int(w.dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
				if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) && !w.force {
					continue // somebody writes there; who must not see that stops him before
				}
				return &os.PathError{Op: "stat", Path: name, Err: err}
			}
			if st.Mode&unix.S_IFMT == unix.S_IFDIR {
				if err := w.hold(name); err != nil {
					return err
				}
				fr.dirs = append(fr.dirs, name)
			}
			if err := f(name, &st); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			w.depth = append(w.depth, fr)
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// next moves to where a directory is left to enter, and returns its name, empty
// at the end. It calls leave before it leaves a directory, with the mode that it
// had at first.
func (w *walker) next(leave func(mode uint32) error) (string, error) {
	for {
		top := &w.depth[len(w.depth)-1]
		if n := len(top.dirs); n > 0 {
			name := top.dirs[n-1]
			top.dirs = top.dirs[:n-1]
			w.drop(name)
			return name, nil
		}
		if err := leave(top.mode); err != nil {
			return "", err
		}
		if err := w.up(); err != nil || len(w.depth) == 0 {
			return "", err
		}
	}
}

// up leaves a directory; the first one it stays in.
func (w *walker) up() error {
	fr := w.depth[len(w.depth)-1]
	w.depth = w.depth[:len(w.depth)-1]
	parent := w.dir
	if len(w.depth) > 0 {
		var err error
		if parent, err = openDir(int(w.dir.Fd()), ".."); err != nil {
			return err
		}
		defer w.dir.Close()
	}
	if w.force && fr.mode&0o700 != 0o700 {
		if err := unix.Fchmod(int(w.dir.Fd()), fr.mode); err != nil {
			return err
		}
	}
	if len(w.depth) == 0 {
		return nil
	}
	defer func() { w.dir = parent }()
	var st unix.Stat_t
	if err := unix.Fstat(int(parent.Fd()), &st); err != nil {
		return err
	}
	if w.depth[len(w.depth)-1].id != inode(&st) {
		return errMoved
	}
	return nil
}

// enter moves into a directory, of which it has a name and where that counts.
func (w *walker) enter(at int, name string) error {
	var st unix.Stat_t
	if err := unix.Fstatat(at, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	mode := uint32(st.Mode & 0o7777) //nolint:unconvert // the types differ between systems
	if w.force && mode&0o700 != 0o700 && st.Mode&unix.S_IFMT == unix.S_IFDIR {
		if err := remove.Chmod(at, name, mode|0o700); err != nil {
			return err
		}
	}
	child, err := openDir(at, name)
	if err != nil {
		return err
	}
	if w.dir != nil {
		w.dir.Close()
	}
	w.dir, w.mode = child, mode
	return nil
}

// DiskUsage is how many bytes of the disk the files in a tree take. While
// somebody writes there it is not exact. A tree that is not there takes none.
// It ends with the error of each, which is called for every entry first unless it
// is nil; then it gives what it has found so far.
func DiskUsage(ctx context.Context, path string, each func() error) (uint64, error) {
	w := walker{}
	err := w.enter(unix.AT_FDCWD, path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer func() { w.dir.Close() }()
	var sum uint64
	linked := map[devIno]struct{}{} // seen already
	count := func(_ string, st *unix.Stat_t) error {
		if each != nil {
			if err := each(); err != nil {
				return err
			}
		}
		if st.Nlink > 1 && st.Mode&unix.S_IFMT != unix.S_IFDIR {
			id := inode(st)
			if _, ok := linked[id]; ok {
				return nil
			}
			linked[id] = struct{}{}
		}
		sum += uint64(st.Blocks) * 512
		return nil
	}
	for {
		if err := w.scan(ctx, count); err != nil {
			return sum, err
		}
		for {
			name, err := w.next(func(uint32) error { return nil })
			if errors.Is(err, errMoved) {
				return sum, nil // it makes itself smaller than it is for this once
			}
			if err != nil || name == "" {
				return sum, err
			}
			err = w.enter(int(w.dir.Fd()), name)
			if err == nil {
				break
			}
			if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) && !errors.Is(err, fs.ErrPermission) {
				return sum, err
			}
		}
	}
}
