//go:build linux

package files

import (
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events/kind"
)

// copyPiece is how much of a file is copied between two checks of the request and the disk.
const copyPiece = 8 << 20

// copier copies a file or a tree.
type copier struct {
	*op
	into unix.Stat_t // the directory that a tree is copied to
}

// copyPath copies the file at the path. A link is copied as a link.
func copyPath(o *op) error {
	to, err := Resolve(o.who.Home, o.req.To)
	if err != nil {
		return err
	}
	from, name, err := o.openParent(o.path)
	if err != nil {
		return err
	}
	defer closeFd(from)
	var st unix.Stat_t
	if err := unix.Fstatat(from, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	c := &copier{op: o}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		if o.req.Single {
			return kind.Newf(kind.Invalid, "copy", "", "path '%s' is a directory", o.path)
		}
		err = c.tree(from, name, to)
	case unix.S_IFLNK:
		var dir int
		var base string
		if dir, base, err = o.openParent(to); err == nil {
			err = c.link(from, name, dir, base)
			closeFd(dir)
		}
	default:
		if err := regular(o.path, &st); err != nil {
			return err
		}
		var at *target
		if at, err = o.target(to); err == nil {
			err = c.file(from, name, at)
			closeFd(at.dir)
		}
	}
	if err != nil {
		return errorOf(to, err)
	}
	return o.sendStat(to)
}

// tree copies a directory to a path.
func (c *copier) tree(from int, name, to string) error {
	src, err := openAt(from, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK)
	if err != nil {
		return err
	}
	in := os.NewFile(uintptr(src), name)
	defer in.Close()
	made, err := c.ensure(to)
	if err != nil {
		return err
	}
	dst, err := c.openDir(to)
	if err != nil {
		return err
	}
	defer closeFd(dst)
	inside, ok1 := c.whereIs(dst)
	outside, ok2 := c.whereIs(src)
	if !ok1 || !ok2 || inside == outside || strings.HasPrefix(inside, strings.TrimSuffix(outside, "/")+"/") {
		if dir, base, err := c.openParent(to); made && err == nil {
			unix.Unlinkat(dir, base, unix.AT_REMOVEDIR) //nolint:errcheck // the copy has failed
			closeFd(dir)
		}
		return c.intoItself()
	}
	if err := unix.Fstat(dst, &c.into); err != nil {
		return err
	}
	return c.contents(in, dst, 1)
}

func (c *copier) intoItself() error {
	return kind.Newf(kind.Invalid, "copy", "", "directory '%s' cannot be copied to itself or into itself", c.path)
}

// contents copies what a directory at that level of the tree contains.
func (c *copier) contents(src *os.File, dst, level int) error {
	if level > maxLevels {
		return tooDeep("copy")
	}
	for {
		names, err := src.Readdirnames(nameBatch)
		for _, name := range names {
			if Hidden(name) {
				continue
			}
			if err := c.entry(int(src.Fd()), dst, name, level); err != nil {
				return err
			}
		}
		switch {
		case isEOF(err):
			return nil
		case err != nil:
			return err
		}
	}
}

// entry copies a name of one directory to another. Files that are not regular are left out, as
// are those that were removed meanwhile.
func (c *copier) entry(src, dst int, name string, level int) error {
	if err := c.aborted(); err != nil {
		return err
	}
	var st, old unix.Stat_t
	err := unix.Fstatat(src, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if oneOf(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return c.directory(src, dst, name, level)
	case unix.S_IFLNK:
		return c.link(src, name, dst, name)
	case unix.S_IFREG:
		at := &target{dir: dst, name: name}
		at.old = unix.Fstatat(dst, name, &old, unix.AT_SYMLINK_NOFOLLOW) == nil
		return c.file(src, name, at)
	}
	return nil
}

// directory copies a directory with all below it.
func (c *copier) directory(src, dst int, name string, level int) error {
	from, err := openAt(src, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK)
	if err != nil {
		return err
	}
	in := os.NewFile(uintptr(from), name)
	defer in.Close()
	var st unix.Stat_t
	if err := unix.Fstat(from, &st); err != nil {
		return err
	}
	if st.Ino == c.into.Ino && st.Dev == c.into.Dev { // moved here since the check
		return c.intoItself()
	}
	err = unix.Mkdirat(dst, name, dirMode)
	made := err == nil
	if made {
		err = c.own(dst, name)
	}
	if err != nil && !oneOf(err, unix.EEXIST) {
		return err
	}
	to, err := openAt(dst, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW)
	if err != nil {
		return err
	}
	defer closeFd(to)
	if err := c.contents(in, to, level+1); err != nil || !made {
		return err
	}
	return unix.Fchmod(to, st.Mode&0o777)
}

// link copies a link.
func (c *copier) link(src int, name string, dst int, base string) error {
	var buf [unix.PathMax]byte
	n, err := unix.Readlinkat(src, name, buf[:])
	if err != nil {
		return err
	}
	if err := unix.Symlinkat(string(buf[:n]), dst, base); err != nil {
		return err
	}
	return c.own(dst, base)
}

// file copies a regular file, with its mode and its metadata.
func (c *copier) file(src int, name string, at *target) error {
	fd, err := openAt(src, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY)
	if err != nil {
		return err
	}
	in := os.NewFile(uintptr(fd), name)
	defer in.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if err := regular(c.path, &st); err != nil {
		return err
	}
	at.mode = st.Mode & 0o777
	c.req.Meta = readMeta(procPath(fd))
	return c.put(at, func(out *os.File) error { return c.content(out, in, st.Size) })
}

// content copies size bytes, and holes as holes.
func (c *copier) content(out, in *os.File, size int64) error {
	for at := int64(0); at < size; {
		from, to := dataAfter(in, at, size)
		if from == size {
			break
		}
		if err := c.pieces(out, in, from, to); err != nil {
			return err
		}
		at = to
	}
	return out.Truncate(size)
}

// dataAfter returns the part of a file after an offset that is not a hole; all of it, if the
// file system does not tell.
func dataAfter(f *os.File, at, size int64) (from, to int64) {
	from, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
	switch {
	case oneOf(err, unix.ENXIO):
		return size, size
	case err != nil:
		return at, size
	}
	to, err = unix.Seek(int(f.Fd()), from, unix.SEEK_HOLE)
	if err != nil || to > size || to <= from {
		to = size
	}
	return min(from, size), to
}

func (c *copier) pieces(out, in *os.File, from, to int64) error {
	if _, err := in.Seek(from, io.SeekStart); err != nil {
		return err
	}
	if _, err := out.Seek(from, io.SeekStart); err != nil {
		return err
	}
	for from < to {
		if err := c.aborted(); err != nil {
			return err
		}
		if err := c.diskFree(); err != nil {
			return err
		}
		n, err := io.Copy(out, io.LimitReader(in, min(copyPiece, to-from)))
		if err != nil {
			return err
		}
		if n == 0 {
			return nil // it became shorter
		}
		from += n
	}
	return nil
}
