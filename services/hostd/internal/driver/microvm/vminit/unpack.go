//go:build linux

package vminit

import (
	"archive/tar"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

var errFiles = errors.New("malformed files of a guest")

// unpack unpacks the output of pack into an empty directory. The stream may be hostile:
// nothing is made outside of the directory.
func unpack(r io.Reader, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	var dirs []*tar.Header
	for in := tar.NewReader(r); ; {
		h, err := in.Next()
		if err != nil { // also at the end: a valid stream returns before it
			return fmt.Errorf("%w: %w", errFiles, err)
		}
		if h.PAXRecords[whole] != "" {
			break
		}
		if h.Name = strings.TrimSuffix(h.Name, "/"); h.Name == "" || path.Clean(h.Name) != h.Name || h.Name == "." && h.Typeflag != tar.TypeDir {
			return fmt.Errorf("%w: %q", errFiles, h.Name)
		}
		if h.Typeflag == tar.TypeDir {
			dirs = append(dirs, h)
		}
		if err := create(root, h, in); err != nil {
			return fmt.Errorf("make /%s: %w", h.Name, err)
		}
	}
	// Entries that are created in a directory change its time, and its mode may forbid them.
	for _, h := range slices.Backward(dirs) {
		f, err := root.Open(h.Name)
		if err == nil {
			err = errors.Join(seal(f, h), f.Close())
		}
		if err != nil {
			return fmt.Errorf("make /%s: %w", h.Name, err)
		}
	}
	return nil
}

// create makes what a header describes. The caller seals directories at the end.
func create(root *os.Root, h *tar.Header, r io.Reader) error {
	switch h.Typeflag {
	case tar.TypeDir:
		if h.Name == "." {
			return nil
		}
		return root.Mkdir(h.Name, 0o700)
	case tar.TypeReg:
		f, err := root.OpenFile(h.Name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		return errors.Join(fill(f, r), seal(f, h), f.Close())
	case tar.TypeLink:
		return root.Link(h.Linkname, h.Name)
	case tar.TypeSymlink:
		return special(root, h, func(dir int, name string) error { return unix.Symlinkat(h.Linkname, dir, name) })
	case tar.TypeFifo:
		return special(root, h, func(dir int, name string) error {
			err := unix.Mknodat(dir, name, unix.S_IFIFO, 0)
			return errors.Join(err, unix.Fchmodat(dir, name, uint32(h.Mode&0o7777), 0))
		})
	case tar.TypeChar:
		return special(root, h, func(dir int, name string) error {
			if h.Devmajor != 0 || h.Devminor != 0 {
				return fmt.Errorf("%w: a device", errFiles)
			}
			return unix.Mknodat(dir, name, unix.S_IFCHR, 0)
		})
	}
	return fmt.Errorf("%w: an entry of type %q", errFiles, h.Typeflag)
}

// special makes a file that is not opened, with its owner and time if it has them.
func special(root *os.Root, h *tar.Header, create func(dir int, name string) error) error {
	// An existing file there may not be a directory, and opening a FIFO could block forever.
	dir, err := root.OpenFile(path.Dir(h.Name), os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer dir.Close()
	at, name := int(dir.Fd()), path.Base(h.Name)
	if err := create(at, name); err != nil || h.Typeflag == tar.TypeChar {
		return err
	}
	return errors.Join(
		unix.Fchownat(at, name, h.Uid, h.Gid, unix.AT_SYMLINK_NOFOLLOW),
		unix.UtimesNanoAt(at, name, times(h), unix.AT_SYMLINK_NOFOLLOW),
	)
}

func times(h *tar.Header) []unix.Timespec {
	t := unix.Timespec{Sec: h.ModTime.Unix(), Nsec: int64(h.ModTime.Nanosecond())}
	return []unix.Timespec{t, t}
}

// fill sets the size of a file and writes its parts.
func fill(f *os.File, r io.Reader) error {
	var size int64
	if err := binary.Read(r, binary.LittleEndian, &size); err != nil || size < 0 {
		return errors.Join(fmt.Errorf("%w: a file of %d bytes", errFiles, size), err)
	}
	if err := f.Truncate(size); err != nil {
		return err
	}
	for {
		var p part
		err := binary.Read(r, binary.LittleEndian, &p)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil || p.Start < 0 || p.Start > p.End || p.End > size {
			return errors.Join(fmt.Errorf("%w: part %v of a file", errFiles, p), err)
		}
		if _, err := io.CopyN(io.NewOffsetWriter(f, p.Start), r, p.End-p.Start); err != nil {
			return err
		}
	}
}

// seal sets attributes, owner, mode and time of an open file.
func seal(f *os.File, h *tar.Header) error {
	fd := int(f.Fd())
	if err := unix.Fchown(fd, h.Uid, h.Gid); err != nil {
		return err
	}
	if err := unix.Fchmod(fd, uint32(h.Mode&0o7777)); err != nil {
		return err
	}
	for key, value := range h.PAXRecords { // after chown and chmod, which change some
		name, ok := strings.CutPrefix(key, paxAttribute)
		if !ok || !counts(name) {
			continue
		}
		if err := unix.Fsetxattr(fd, name, []byte(value), 0); err != nil {
			return fmt.Errorf("attribute %s: %w", name, err)
		}
	}
	return unix.UtimesNanoAt(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), times(h), 0)
}

// chunks is the stream of files after a Spec: each chunk has its length in four bytes and
// its bytes; the last one is empty.
type chunks struct {
	r    io.Reader
	left uint32
	err  error
}

// Read implements io.Reader. It returns io.EOF after the last chunk.
func (c *chunks) Read(b []byte) (int, error) {
	for c.left == 0 && c.err == nil {
		head := make([]byte, headLen)
		if _, c.err = io.ReadFull(c.r, head); c.err != nil {
			break
		}
		if c.left = binary.BigEndian.Uint32(head); c.left == 0 {
			c.err = io.EOF
		}
		if c.left > math.MaxInt32 {
			c.err = errFiles
		}
	}
	if c.err != nil {
		return 0, c.err
	}
	n, err := c.r.Read(b[:min(len(b), int(c.left))])
	c.left -= uint32(n)
	return n, err
}
