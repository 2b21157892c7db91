package live

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/services/hostd/internal/rmtree"
)

// Copy has the options of CopyTree.
type Copy struct {
	// Link makes hard links of files instead of copies where possible: for trees
	// that no longer change.
	Link bool
	// Base is subtracted from each uid and gid, so that a sandbox's range starts at 0;
	// ids outside of it become the user nobody. Zero keeps owners as they are.
	Base uint32
}

const (
	nobody    = 65534
	rangeSize = 1 << 16
)

// CopyTree creates the directory to and copies into it the contents of from: files with
// their holes and hard links, directories, links, pipes, sockets and an overlay's
// whiteouts, with modes, times, owners where permitted, and user attributes, but not
// attributes that grant privileges. Blocks are shared where the file system supports
// it. from must not change meanwhile, but its contents may be hostile; on error
// something may be left in to.
func CopyTree(ctx context.Context, from, to string, how Copy) error {
	root := os.Geteuid() == 0
	c := copier{walker: walker{force: !root}, how: how, links: map[devIno]string{}, owners: root}
	if err := c.enter(unix.AT_FDCWD, from); err != nil {
		return fmt.Errorf("copy %s: %w", from, err)
	}
	defer func() { c.dir.Close() }()
	if err := os.Mkdir(to, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	var err error
	if c.to, err = os.OpenFile(to, dirFlags, 0); err != nil {
		return err
	}
	defer func() { c.to.Close() }()
	if err := c.tree(ctx); err != nil {
		return fmt.Errorf("copy %s: %w", from, err)
	}
	return nil
}

type copier struct {
	walker
	to     *os.File // destination of dir
	how    Copy
	owners bool

	hub   *os.File          // a directory with a link to each file of several links
	links map[devIno]string // its name there
}

func (c *copier) tree(ctx context.Context) error {
	top, err := openDir(int(c.to.Fd()), ".")
	if err != nil {
		return err
	}
	defer top.Close()
	hub := ".links-" + rand.Text()
	if err := unix.Mkdirat(int(top.Fd()), hub, 0o700); err != nil {
		return err
	}
	if c.hub, err = openDir(int(top.Fd()), hub); err != nil {
		return err
	}
	defer c.hub.Close()
	for name := "."; name != ""; {
		if err := c.scan(ctx, func(name string, st *unix.Stat_t) error { return c.entry(ctx, name, st) }); err != nil {
			return err
		}
		if name, err = c.next(c.leave); err != nil {
			return err
		}
		if name != "" {
			if err := c.descend(name); err != nil {
				return err
			}
		}
	}
	for _, name := range c.links {
		if err := unix.Unlinkat(int(c.hub.Fd()), name, 0); err != nil {
			return err
		}
	}
	if err := unix.Unlinkat(int(top.Fd()), hub, unix.AT_REMOVEDIR); err != nil {
		return err
	}
	return c.seal(c.mode)
}

func (c *copier) descend(name string) error {
	if err := c.enter(int(c.dir.Fd()), name); err != nil {
		return err
	}
	child, err := openDir(int(c.to.Fd()), name)
	if err != nil {
		return err
	}
	c.to.Close()
	c.to = child
	return nil
}

// leave sets the attributes of the finished directory, and goes up.
func (c *copier) leave(mode uint32) error {
	c.mode = mode
	if len(c.depth) == 1 {
		return nil // it has subdirectories left
	}
	parent, err := openDir(int(c.to.Fd()), "..") // before its mode prevents it
	if err != nil {
		return err
	}
	if err := c.seal(mode); err != nil {
		parent.Close()
		return err
	}
	c.to.Close()
	c.to = parent
	return nil
}

// entry copies an entry that is not a directory; for a directory it only checks that it exists.
func (c *copier) entry(ctx context.Context, name string, st *unix.Stat_t) error {
	from, to := int(c.dir.Fd()), int(c.to.Fd())
	kind := st.Mode & unix.S_IFMT
	if kind == unix.S_IFDIR {
		return unix.Mkdirat(to, name, 0o700)
	}
	if c.how.Link && unix.Linkat(from, name, to, name, 0) == nil {
		return nil
	}
	id := inode(st)
	if first, ok := c.links[id]; ok {
		return unix.Linkat(int(c.hub.Fd()), first, to, name, 0)
	}
	var err error
	switch kind {
	case unix.S_IFREG:
		err = c.file(ctx, name, st)
	case unix.S_IFLNK:
		err = c.symlink(name)
	case unix.S_IFIFO, unix.S_IFSOCK:
		err = unix.Mknodat(to, name, kind|0o600, 0)
	case unix.S_IFCHR:
		if st.Rdev != 0 { // a whiteout is the only device that a sandbox can make
			return nil
		}
		err = unix.Mknodat(to, name, kind, 0)
	default:
		return nil
	}
	if err == nil {
		err = c.setAttributes(name, st)
	}
	if err == nil && st.Nlink > 1 {
		c.links[id] = strconv.Itoa(len(c.links))
		if err := c.remember(c.links[id]); err != nil {
			return err
		}
		err = unix.Linkat(to, name, int(c.hub.Fd()), c.links[id], 0)
	}
	if err != nil {
		return &os.PathError{Op: "copy", Path: name, Err: err}
	}
	return nil
}

// setAttributes sets the owner, mode and times of an entry that is not a directory.
func (c *copier) setAttributes(name string, st *unix.Stat_t) error {
	to := int(c.to.Fd())
	if c.owners {
		if err := unix.Fchownat(to, name, c.owner(st.Uid), c.owner(st.Gid), unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err
		}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFLNK {
		if err := unix.Fchmodat(to, name, st.Mode&0o7777, 0); err != nil {
			return err
		}
	}
	return unix.UtimesNanoAt(to, name, []unix.Timespec{st.Atim, st.Mtim}, unix.AT_SYMLINK_NOFOLLOW)
}

// seal sets attributes, owner, mode and times of the current directory.
func (c *copier) seal(mode uint32) error {
	to, from := int(c.to.Fd()), int(c.dir.Fd())
	var st unix.Stat_t
	if err := unix.Fstat(from, &st); err != nil {
		return err
	}
	if err := copyAttributes(to, from); err != nil {
		return err
	}
	if c.owners {
		if err := unix.Fchown(to, c.owner(st.Uid), c.owner(st.Gid)); err != nil {
			return err
		}
	}
	if err := unix.UtimesNanoAt(to, ".", []unix.Timespec{st.Atim, st.Mtim}, 0); err != nil {
		return err
	}
	return unix.Fchmod(to, mode)
}

func (c *copier) owner(id uint32) int {
	switch {
	case c.how.Base == 0:
		return int(id)
	case id-c.how.Base < rangeSize:
		return int(id - c.how.Base)
	}
	return nobody
}

func (c *copier) symlink(name string) error {
	target := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(int(c.dir.Fd()), name, target)
	if err != nil {
		return err
	}
	return unix.Symlinkat(string(target[:n]), int(c.to.Fd()), name)
}

// source opens a file; one that its owner, this user, may not read is made
// readable for a moment.
func (c *copier) source(name string, st *unix.Stat_t) (*os.File, error) {
	at := int(c.dir.Fd())
	open := func() (int, error) {
		return unix.Openat(at, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	}
	fd, err := open()
	if errors.Is(err, fs.ErrPermission) && c.force {
		if err := rmtree.Chmod(at, name, st.Mode&0o7777|0o400); err != nil {
			return nil, err
		}
		fd, err = open()
		err = errors.Join(err, rmtree.Chmod(at, name, st.Mode&0o7777))
	}
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

func (c *copier) file(ctx context.Context, name string, st *unix.Stat_t) error {
	src, err := c.source(name, st)
	if err != nil {
		return err
	}
	defer src.Close()
	fd, err := unix.Openat(int(c.to.Fd()), name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	dst := os.NewFile(uintptr(fd), name)
	defer dst.Close()
	if err := unix.IoctlFileClone(fd, int(src.Fd())); err != nil {
		if err := copyData(ctx, dst, src); err != nil {
			return err
		}
	}
	if err := copyAttributes(fd, int(src.Fd())); err != nil {
		return err
	}
	return dst.Close()
}

// CopyFile copies a file with its holes to a new one.
func CopyFile(ctx context.Context, src *os.File, to string) error {
	dst, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer dst.Close()
	if err := unix.IoctlFileClone(int(dst.Fd()), int(src.Fd())); err != nil {
		if err := copyData(ctx, dst, src); err != nil {
			return err
		}
	}
	return dst.Close()
}

const chunk = 16 << 20 // bytes copied between two checks of the context

// copyData copies the data between a file's holes.
func copyData(ctx context.Context, dst, src *os.File) error {
	size, err := src.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if err := CopyRange(ctx, dst, 0, src, 0, size); err != nil {
		return err
	}
	return dst.Truncate(size)
}

// CopyRange copies size bytes of src, from the offset from to the offset to of
// dst, leaving out holes.
func CopyRange(ctx context.Context, dst *os.File, to int64, src *os.File, from, size int64) error {
	last := from + size
	for at := from; at < last; {
		start, err := unix.Seek(int(src.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) { // only a hole is left
			return nil
		}
		if err != nil {
			return err
		}
		end, err := unix.Seek(int(src.Fd()), start, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		end = min(end, last)
		for at = start; at < end; {
			if err := ctx.Err(); err != nil {
				return err
			}
			n := min(chunk, end-at)
			if _, err := src.Seek(at, io.SeekStart); err != nil {
				return err
			}
			if _, err := dst.Seek(to+at-from, io.SeekStart); err != nil {
				return err
			}
			if _, err := io.CopyN(dst, src, n); err != nil { // uses copy_file_range
				return err
			}
			at += n
		}
	}
	return nil
}

const overlayPrefix = "user.overlay."

// copyAttributes copies the user's attributes, and of an overlay's own the one
// that has a meaning in a lower layer.
func copyAttributes(to, from int) error {
	names, err := attributeNames(from)
	if err != nil {
		return err
	}
	for _, name := range names {
		if !strings.HasPrefix(name, "user.") || strings.HasPrefix(name, overlayPrefix) && name != overlayPrefix+"opaque" {
			continue
		}
		value := make([]byte, 1<<16) // XATTR_SIZE_MAX
		n, err := unix.Fgetxattr(from, name, value)
		if err == nil {
			err = unix.Fsetxattr(to, name, value[:n], 0)
		}
		if err != nil {
			return fmt.Errorf("attribute %s: %w", name, err)
		}
	}
	return nil
}

func attributeNames(fd int) ([]string, error) {
	n, err := unix.Flistxattr(fd, nil)
	if errors.Is(err, unix.ENOTSUP) || err == nil && n == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	list := make([]byte, n)
	if n, err = unix.Flistxattr(fd, list); err != nil {
		return nil, err
	}
	return strings.FieldsFunc(string(list[:n]), func(r rune) bool { return r == 0 }), nil
}
