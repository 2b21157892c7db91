//go:build linux

package files

import (
	"archive/tar"
	"errors"
	"io"
	"path"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events/kind"
)

// unpack makes the contents of a tar below the path. Names cannot lead out of it; an
// existing link is followed, within the root, as in all operations.
func (o *op) unpack() error {
	if _, err := o.ensure(o.path); err != nil {
		return err
	}
	for r := tar.NewReader(o.in); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			_, err = io.Copy(io.Discard, o.in) // the padding behind its end
			return err
		}
		if errors.Is(err, tar.ErrHeader) || errors.Is(err, io.ErrUnexpectedEOF) {
			return kind.Newf(kind.Invalid, "unpack", "", "incomplete or malformed tar: %s", err)
		}
		if err != nil {
			return err
		}
		m := member{op: *o, header: h, link: o.below(h.Linkname)}
		m.path, m.in, m.req.Mode = o.below(h.Name), r, uint32(h.Mode)&0o777
		if err := m.make(); err != nil {
			return errorOf(m.path, err)
		}
	}
}

func (o *op) below(name string) string { return path.Join(o.path, path.Clean("/"+name)) }

// member is the operation that makes one member of a tar.
type member struct {
	op
	header *tar.Header
	link   string // target of a hard link
}

func (m *member) make() error {
	h := m.header
	if h.Typeflag == tar.TypeDir {
		return m.makeDirOf()
	}
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	if _, err := m.ensure(path.Dir(m.path)); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeGNUSparse:
		at, err := m.target(m.path)
		if err != nil {
			return err
		}
		defer closeFd(at.dir)
		at.mode = m.req.Mode
		return m.put(at, m.fill)
	case tar.TypeSymlink:
		return m.replace(func(dir int, name string) error { return unix.Symlinkat(h.Linkname, dir, name) })
	case tar.TypeLink:
		from, base, err := m.openParent(m.link)
		if err != nil {
			return err
		}
		defer closeFd(from)
		return m.replace(func(dir int, name string) error { return unix.Linkat(from, base, dir, name, 0) })
	}
	return kind.Newf(kind.Invalid, "unpack", "", "%q is neither a file, a directory nor a link", h.Name)
}

// makeDirOf makes a directory with the entry's mode.
func (m *member) makeDirOf() error {
	if m.path == "/" {
		return nil
	}
	made, err := m.ensure(m.path)
	if err != nil || !made { // an existing one is unchanged: a copy into /usr does not change it
		return err
	}
	fd, err := m.open(m.path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK)
	if err != nil {
		return err
	}
	defer closeFd(fd)
	return unix.Fchmod(fd, m.req.Mode)
}

// replace makes a link in place of anything but a directory.
func (m *member) replace(link func(dir int, name string) error) error {
	dir, name, err := m.openParent(m.path)
	if err != nil {
		return err
	}
	defer closeFd(dir)
	err = link(dir, name)
	if errors.Is(err, unix.EEXIST) {
		if err := unix.Unlinkat(dir, name, 0); err != nil {
			return err
		}
		err = link(dir, name)
	}
	if err != nil {
		return err
	}
	return m.own(dir, name)
}
