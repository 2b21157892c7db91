//go:build linux

package files

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"math"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events/file"
	"github.com/millrace/millrace/events/kind"
)

const (
	fileMode   = 0o644
	copyBuffer = 128 << 10
	maxLinks   = 40
)

// Prefixes of temporary names for content that is being written: for a new file,
// or for an existing one.
const (
	hiddenPrefix = ".millrace-upload-"
	hiddenNew    = hiddenPrefix + "new-"
	hiddenOld    = hiddenPrefix + "old-"
	hiddenRandom = 16
)

// Hidden reports whether a name is a temporary name.
func Hidden(name string) bool {
	return strings.HasPrefix(name, hiddenPrefix) && len(name) == len(hiddenNew)+hiddenRandom
}

func isEOF(err error) bool { return errors.Is(err, io.EOF) }

// read sends a file's entry, then the requested part of it.
func (o *op) read() error {
	fd, err := o.open(o.path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY) // opening a FIFO must not block
	if oneOf(err, unix.ENXIO, unix.EXDEV) {
		return o.unlikeFile(err)
	}
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), o.path)
	defer f.Close()
	e := entry{path: o.path}
	if err := unix.Fstat(fd, &e.st); err != nil {
		return err
	}
	if err := regular(o.path, &e.st); err != nil {
		return err
	}
	e.meta = readMeta(procPath(fd))
	if err := o.send(&e); err != nil {
		return err
	}
	if err := o.out.Flush(); err != nil {
		return err
	}
	raw, err := file.ReadFrame(o.in, nil)
	if isEOF(err) {
		return nil // only the entry was requested
	}
	if err != nil {
		return err
	}
	part, err := file.ParseRange(raw)
	if err != nil {
		return err
	}
	return o.sendPart(f, part)
}

// sendPart sends a part of a file. Only a part that was requested as open-ended may end
// early.
func (o *op) sendPart(f *os.File, part file.Range) error {
	if part.Offset > 0 {
		if _, err := f.Seek(part.Offset, io.SeekStart); err != nil {
			return err
		}
	}
	length := part.Length
	if length < 0 {
		length = math.MaxInt64
	}
	n, err := io.CopyBuffer(struct{ io.Writer }{o.out}, struct{ io.Reader }{io.LimitReader(f, length)}, make([]byte, copyBuffer))
	if err == nil && part.Length >= 0 && n < part.Length {
		err = kind.Newf(kind.Unavailable, "read", "", "path '%s' became shorter while it was read", o.path)
	}
	return err
}

// unlikeFile returns the error for something that is not a regular file: the error of opening
// it is misleading for a socket (ENXIO), and in gVisor for a FIFO (EXDEV).
func (o *op) unlikeFile(failed error) error {
	fd, err := o.open(o.path, unix.O_PATH)
	if err != nil {
		return failed
	}
	defer closeFd(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return failed
	}
	if err := regular(o.path, &st); err != nil {
		return err
	}
	return failed
}

func regular(p string, st *unix.Stat_t) error {
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return nil
	case unix.S_IFDIR:
		return kind.Newf(kind.Invalid, "file", "", "path '%s' is a directory", p)
	}
	return kind.Newf(kind.Invalid, "file", "", "path '%s' is not a regular file", p)
}

// target is where a file is written: a name in an open directory.
type target struct {
	dir  int
	name string
	mode uint32 // of the existing file, or of a new one
	old  bool   // a file exists
}

// write receives a file's content and moves it to its path.
func (o *op) write() error {
	if strings.HasSuffix(o.req.Path, "/") && o.path != "/" { // the path names a directory, whether or not it exists
		return kind.Newf(kind.Invalid, "write", "", "path '%s' is a directory", o.req.Path)
	}
	if !o.req.Single {
		if _, err := o.ensure(path.Dir(o.path)); err != nil {
			return err
		}
	}
	at, err := o.target(o.path)
	if err != nil {
		return err
	}
	defer closeFd(at.dir)
	if at.old && o.req.Fresh {
		return kind.Newf(kind.Conflict, "write", "", "path '%s' already exists", o.path)
	}
	if err := o.put(at, o.fill); err != nil {
		return err
	}
	e, err := o.statAt(at.dir, at.name, o.path)
	if err != nil {
		return err
	}
	return o.send(&e)
}

// target finds where a write to p ends: it follows links, also dangling ones.
func (o *op) target(p string) (*target, error) {
	for range maxLinks {
		dir, base, err := o.openParent(p)
		if err != nil {
			return nil, err
		}
		at := &target{dir: dir, name: base, mode: o.req.Mode}
		if at.mode == 0 {
			at.mode = fileMode
		}
		var st unix.Stat_t
		err = unix.Fstatat(dir, base, &st, unix.AT_SYMLINK_NOFOLLOW)
		switch {
		case errors.Is(err, unix.ENOENT):
			return at, nil
		case err == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK:
			p, err = linkTarget(dir, base, p)
			closeFd(dir)
			if err != nil {
				return nil, err
			}
			continue
		case err == nil:
			err = regular(o.path, &st)
		}
		if err != nil {
			closeFd(dir)
			return nil, err
		}
		at.old = true
		if o.req.Mode == 0 {
			at.mode = st.Mode & 0o7777 &^ (unix.S_ISUID | unix.S_ISGID)
		}
		return at, nil
	}
	return nil, unix.ELOOP
}

// linkTarget returns the path that the link at p leads to. It is not cleaned: only the
// kernel can resolve ".." behind another link.
func linkTarget(dir int, base, p string) (string, error) {
	var buf [unix.PathMax]byte
	n, err := unix.Readlinkat(dir, base, buf[:])
	if err != nil {
		return "", err
	}
	to := string(buf[:n])
	if !strings.HasPrefix(to, "/") {
		at, _ := path.Split(p)
		to = at + to
	}
	for strings.HasSuffix(to, "/") && to != "/" {
		to = to[:len(to)-1]
	}
	if base := path.Base(to); base == "." || base == ".." {
		return "", unix.EISDIR
	}
	return to, nil
}

// begin creates the file that is written to.
func (at *target) begin() (string, int, error) {
	prefix := hiddenNew
	if at.old {
		prefix = hiddenOld
	}
	var b [hiddenRandom / 2]byte
	rand.Read(b[:])
	name := prefix + hex.EncodeToString(b[:])
	fd, err := unix.Openat(at.dir, name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	return name, fd, err
}

// put creates a file with what fill writes, and moves it to its path.
func (o *op) put(at *target, fill func(*os.File) error) error {
	name, fd, err := at.begin()
	if at.old && o.req.Confine != nil && oneOf(err, unix.EACCES) {
		return at.putInPlace(o, fill) // package confine: entries that exist may be writable, and none can be added
	}
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), name)
	if err = fill(f); err == nil {
		err = o.finish(fd, at)
	}
	if err2 := f.Close(); err == nil {
		err = err2
	}
	if err == nil {
		err = o.moveIntoPlace(at, name)
	}
	if err != nil {
		unix.Unlinkat(at.dir, name, 0) //nolint:errcheck // the first error is returned
	}
	return err
}

// fill writes the received content.
func (o *op) fill(f *os.File) error {
	_, err := io.CopyBuffer(struct{ io.Writer }{f}, guardedReader{o.in, o.diskFree}, make([]byte, copyBuffer))
	return err
}

// guardedReader is the received content, as long as disk space is left.
type guardedReader struct {
	in       io.Reader
	diskFree func() error
}

func (g guardedReader) Read(b []byte) (int, error) {
	if err := g.diskFree(); err != nil {
		return 0, err
	}
	return g.in.Read(b)
}

// finish sets the final attributes of a file.
func (o *op) finish(fd int, at *target) error {
	if err := writeMeta(fd, o.req.Meta); err != nil {
		return err
	}
	if o.give {
		if err := unix.Fchown(fd, o.who.UID, o.who.GID); err != nil {
			return err
		}
	}
	return unix.Fchmod(fd, at.mode)
}
