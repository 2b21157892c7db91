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
		one := *o
		one.path, one.in, one.req.Mode = o.below(h.Name), r, uint32(h.Mode)&0o777
		if err := one.make(h, o.below(h.Linkname)); err != nil {
			return errorOf(one.path, err)
		}
	}
}

func (o *op) below(name string) string { return path.Join(o.path, path.Clean("/"+name)) }

// make makes one entry of a tar; link is the target of a hard link.
func (o *op) make(h *tar.Header, link string) error {
	if h.Typeflag == tar.TypeDir {
		return o.makeDirOf()
	}
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	if _, err := o.ensure(path.Dir(o.path)); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeGNUSparse:
		at, err := o.target(o.path)
		if err != nil {
			return err
		}
		defer closeFd(at.dir)
		at.mode = o.req.Mode
		return o.put(at, o.fill)
	case tar.TypeSymlink:
		return o.replace(func(dir int, name string) error { return unix.Symlinkat(h.Linkname, dir, name) })
	case tar.TypeLink:
		from, base, err := o.openParent(link)
		if err != nil {
			return err
		}
		defer closeFd(from)
		return o.replace(func(dir int, name string) error { return unix.Linkat(from, base, dir, name, 0) })
	}
	return kind.Newf(kind.Invalid, "unpack", "", "%q is neither a file, a directory nor a link", h.Name)
}

// makeDirOf makes a directory with the entry's mode.
func (o *op) makeDirOf() error {
	if o.path == "/" {
		return nil
	}
	made, err := o.ensure(o.path)
	if err != nil || !made { // an existing one is unchanged: a copy into /usr does not change it
		return err
	}
	fd, err := o.open(o.path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK)
	if err != nil {
		return err
	}
	defer closeFd(fd)
	return unix.Fchmod(fd, o.req.Mode)
}

// replace makes a link in place of anything but a directory.
func (o *op) replace(link func(dir int, name string) error) error {
	dir, name, err := o.openParent(o.path)
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
	return o.own(dir, name)
}
