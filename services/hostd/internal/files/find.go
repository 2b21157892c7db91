//go:build linux

package files

import (
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events/file"
	"github.com/millrace/millrace/events/kind"
)

// Limits of a walk, whatever its client asks for.
const (
	maxFindDirs   = 1 << 14
	maxFindErrors = 1 << 10
)

// finder is a walk in progress.
type finder struct {
	*op
	queue     []foundDir
	entries   uint32
	errors    int
	seen      map[[2]uint64]bool // directories that were read, by device and inode
	truncated bool               // something was left out
}

type foundDir struct {
	path  string
	depth uint32
}

// find sends the regular files and directories below the path, breadth first. Each directory is
// opened by its path in the root, so that a tree that changes meanwhile leads nowhere else.
func find(o *op) error {
	fd, err := o.open(o.path, unix.O_PATH)
	if err != nil {
		return err
	}
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	closeFd(fd)
	if err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return kind.Newf(kind.Invalid, "walk", "", "path is not a directory: %s", o.path)
	}
	defer o.endTurn()
	f := &finder{op: o, queue: []foundDir{{path: o.path}}, seen: make(map[[2]uint64]bool)}
	for dirs := uint32(0); len(f.queue) > 0; dirs++ {
		if dirs == min(o.req.MaxDirs, maxFindDirs) {
			f.truncated = true
			break
		}
		dir := f.queue[0]
		f.queue = f.queue[1:]
		more, err := f.read(dir)
		if err != nil {
			return err
		}
		if !more {
			f.truncated = true
			break
		}
	}
	if f.truncated {
		return f.sendFound(file.Found{Truncated: true})
	}
	return nil
}

func (f *finder) sendFound(found file.Found) error {
	_, err := f.out.Write(file.AppendFrame(nil, found.Append(nil)))
	return err
}

// failed reports a directory that cannot be read, unless there were too many.
func (f *finder) failed(dir string, err error) (more bool, failed error) {
	if f.errors++; f.errors > maxFindErrors {
		return false, nil
	}
	return true, f.sendFound(file.Found{Path: strings.ToValidUTF8(dir, "�"), Dir: true, Failed: kind.Message(errorOf(dir, err))})
}

// read sends the entries of a directory and queues those to enter. It returns false when a limit
// ends the walk.
func (f *finder) read(at foundDir) (more bool, err error) {
	flags := unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NONBLOCK
	fd, err := f.open(at.path, flags)
	if err != nil {
		return f.failed(at.path, err)
	}
	dir := os.NewFile(uintptr(fd), at.path)
	defer dir.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return false, err
	}
	id := [2]uint64{uint64(st.Dev), st.Ino}
	if f.seen[id] {
		return true, nil
	}
	f.seen[id] = true
	f.listed = 0
	names, err := f.names(dir)
	if err != nil {
		return f.failed(at.path, err)
	}
	for _, name := range names {
		if Hidden(name) {
			continue
		}
		found, link, ok := f.kindOf(fd, name, path.Join(at.path, name))
		switch {
		case !ok || link && found.Dir && !f.req.Follow:
			continue
		case f.entries == f.req.MaxEntries:
			return false, nil
		}
		f.entries++
		if err := f.sendFound(found); err != nil {
			return false, err
		}
		if !found.Dir || f.req.SkipHidden && strings.HasPrefix(name, ".") {
			continue
		}
		if at.depth == f.req.Depth || len(f.queue) == maxFindDirs {
			f.truncated = true
			continue
		}
		f.queue = append(f.queue, foundDir{path.Join(at.path, name), at.depth + 1})
	}
	return true, nil
}

// kindOf returns what a name of a directory is, with links followed; not ok for anything but
// regular files and directories.
func (f *finder) kindOf(dir int, name, p string) (found file.Found, link, ok bool) {
	found.Path = strings.ToValidUTF8(p, "�")
	var st unix.Stat_t
	if unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return found, false, false
	}
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		link = true
		fd, err := f.open(p, unix.O_PATH)
		if err != nil {
			return found, true, false
		}
		err = unix.Fstat(fd, &st)
		closeFd(fd)
		if err != nil {
			return found, true, false
		}
	}
	found.Dir = st.Mode&unix.S_IFMT == unix.S_IFDIR
	return found, link, found.Dir || st.Mode&unix.S_IFMT == unix.S_IFREG
}
