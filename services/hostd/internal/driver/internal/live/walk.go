package live

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/hostd/internal/rmtree"
)

// walker walks a tree that a sandbox wrote, with one or two descriptors at any depth:
// it returns to the parent by "..". Directories must not be moved meanwhile.
type walker struct {
	dir   *os.File
	depth []frame
	// force makes directories that their owner, this user, may not read readable
	// while the walker is in them.
	force      bool
	mode       uint32 // of dir, before it was forced
	remembered int    // memory used for the remembered part of the tree, in bytes
}

const batch = 512 // directory entries read at a time

// Limits on the remembered part of a tree: the directories that are still to be entered,
// and the files with several names.
const (
	maxRemembered  = 128 << 20
	rememberedEach = 64 // besides its name
)

// remember accounts for a remembered name and fails beyond the limit.
func (w *walker) remember(name string) error {
	if w.remembered += rememberedEach + len(name); w.remembered > maxRemembered {
		return kind.New(kind.Exhausted, "read a tree", "", "too many directories or files with several names")
	}
	return nil
}

func (w *walker) forget(name string) { w.remembered -= rememberedEach + len(name) }

// frame is a directory on the path from the root to the current one.
type frame struct {
	dirs []string // subdirectories not entered yet
	id   devIno
	mode uint32 // before it was forced
}

type devIno struct{ dev, ino uint64 }

func inode(st *unix.Stat_t) devIno {
	return devIno{uint64(st.Dev), st.Ino}
}

// errMoved reports that ".." led to another directory than the one the walker came from.
var errMoved = errors.New("a directory was moved while it was read")

const dirFlags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC

func openDir(at int, name string) (*os.File, error) {
	fd, err := unix.Openat(at, name, dirFlags, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// scan calls f with every entry of the current directory, and remembers the
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
					continue // the tree is being written; a caller that needs it unchanged stops the sandbox first
				}
				return &os.PathError{Op: "stat", Path: name, Err: err}
			}
			if st.Mode&unix.S_IFMT == unix.S_IFDIR {
				if err := w.remember(name); err != nil {
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

// next moves to a directory with a subdirectory left to enter, and returns that one's
// name, or "" at the end. Before it leaves a directory it calls leave with the
// directory's original mode.
func (w *walker) next(leave func(mode uint32) error) (string, error) {
	for {
		top := &w.depth[len(w.depth)-1]
		if n := len(top.dirs); n > 0 {
			name := top.dirs[n-1]
			top.dirs = top.dirs[:n-1]
			w.forget(name)
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

// up leaves a directory; it stays in the top one.
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

// enter moves into the directory name, relative to the descriptor at.
func (w *walker) enter(at int, name string) error {
	var st unix.Stat_t
	if err := unix.Fstatat(at, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	mode := uint32(st.Mode & 0o7777)
	if w.force && mode&0o700 != 0o700 && st.Mode&unix.S_IFMT == unix.S_IFDIR {
		if err := rmtree.Chmod(at, name, mode|0o700); err != nil {
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

// DiskUsage returns the number of bytes that the files in a tree occupy on disk. It is
// not exact while the tree is being written. A tree that does not exist has 0 bytes.
// Unless each is nil, it is called before every entry is counted; its error ends
// DiskUsage, which then returns the sum so far.
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
	linked := map[devIno]struct{}{} // already counted
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
				return sum, nil // the sandbox only understates its own usage this once
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
