//go:build linux

package vminit

import (
	"archive/tar"
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Files that a guest has written, as a stream: a tar with each directory before its
// contents, in which a regular file has its size, and then each part that is not a hole:
// its start, its end, and its bytes; all numbers have eight bytes, little endian. A
// whiteout of a template's file is a device 0:0; a directory that hides all of the
// template's entries has the attribute opaque. The last entry is a global header with the
// record whole: a stream without it is incomplete.
const (
	paxAttribute = "SCHILY.xattr."
	opaque       = "trusted.overlay.opaque"
	whole        = "MILLRACE.whole"
)

// own returns the files that every guest creates for itself.
func own() []string { return []string{"etc/hostname", "etc/hosts", "etc/resolv.conf"} }

// pack writes the contents of the directory to w. They must not change meanwhile. Sockets are
// left out.
func pack(w io.Writer, dir *os.File) error {
	buffered := bufio.NewWriterSize(w, 1<<18)
	p := packer{to: tar.NewWriter(buffered), names: map[inode]string{}}
	if err := p.top(dir); err != nil {
		return err
	}
	end := &tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{whole: "1"}, Format: tar.FormatPAX}
	return errors.Join(p.to.WriteHeader(end), p.to.Close(), buffered.Flush())
}

type packer struct {
	to    *tar.Writer
	names map[inode]string // first name of each file with several names
}

type inode struct{ dev, ino uint64 }

// top packs the directory itself and its contents.
func (p *packer) top(dir *os.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return err
	}
	h := headerOf("./", &st)
	h.Typeflag = tar.TypeDir
	var err error
	if h.PAXRecords, err = attributes(dir); err != nil {
		return err
	}
	if err := p.to.WriteHeader(h); err != nil {
		return err
	}
	return p.below(dir, "")
}

func headerOf(name string, st *unix.Stat_t) *tar.Header {
	return &tar.Header{
		Name: name, Mode: int64(st.Mode & 0o7777), Uid: int(st.Uid), Gid: int(st.Gid),
		ModTime: time.Unix(st.Mtim.Unix()), Format: tar.FormatPAX,
	}
}

// below packs the contents of a directory, whose path is empty or ends with a slash.
func (p *packer) below(dir *os.File, path string) error {
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	slices.Sort(names)
	for _, name := range names {
		if slices.Contains(own(), path+name) {
			continue
		}
		if err := p.entry(dir, path, name); err != nil {
			return fmt.Errorf("pack /%s: %w", path+name, err)
		}
	}
	return nil
}

func (p *packer) entry(dir *os.File, path, name string) error {
	var st unix.Stat_t
	if err := unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	h := headerOf(path+name, &st)
	if named(&st) {
		i := inode{uint64(st.Dev), st.Ino}
		if first, ok := p.names[i]; ok {
			h.Typeflag, h.Linkname = tar.TypeLink, first
			return p.to.WriteHeader(h)
		}
		p.names[i] = h.Name
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return p.dir(dir, h, name)
	case unix.S_IFREG:
		return p.file(dir, h, name, &st)
	case unix.S_IFLNK:
		h.Typeflag = tar.TypeSymlink
		b := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(int(dir.Fd()), name, b)
		if err != nil {
			return err
		}
		h.Linkname = string(b[:n])
	case unix.S_IFIFO:
		h.Typeflag = tar.TypeFifo
	case unix.S_IFCHR:
		if st.Rdev != 0 { // sandboxes do not need devices
			return nil
		}
		h = &tar.Header{Name: h.Name, Typeflag: tar.TypeChar, Format: tar.FormatPAX} // whiteouts have no owner and no time
	default:
		return nil
	}
	return p.to.WriteHeader(h)
}

// named reports whether a file may have several names. Those of whiteouts are internal to
// the overlay.
func named(st *unix.Stat_t) bool {
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG, unix.S_IFLNK, unix.S_IFIFO:
		return st.Nlink > 1
	}
	return false
}

func (p *packer) dir(in *os.File, h *tar.Header, name string) error {
	f, err := openAt(in, name, unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer f.Close()
	h.Typeflag, h.Name = tar.TypeDir, h.Name+"/"
	if h.PAXRecords, err = attributes(f); err != nil {
		return err
	}
	if err := p.to.WriteHeader(h); err != nil {
		return err
	}
	return p.below(f, h.Name)
}

func (p *packer) file(in *os.File, h *tar.Header, name string, st *unix.Stat_t) error {
	f, err := openAt(in, name, unix.O_NONBLOCK)
	if err != nil {
		return err
	}
	defer f.Close()
	parts, err := partsOf(f, st.Size)
	if err != nil {
		return err
	}
	h.Typeflag, h.Size = tar.TypeReg, 8
	for _, part := range parts {
		h.Size += 16 + part.End - part.Start
	}
	if h.PAXRecords, err = attributes(f); err != nil {
		return err
	}
	if err := p.to.WriteHeader(h); err != nil {
		return err
	}
	if err := binary.Write(p.to, binary.LittleEndian, st.Size); err != nil {
		return err
	}
	for _, part := range parts {
		if err := binary.Write(p.to, binary.LittleEndian, part); err != nil {
			return err
		}
		if _, err := io.Copy(p.to, io.NewSectionReader(f, part.Start, part.End-part.Start)); err != nil {
			return err
		}
	}
	return nil
}

func openAt(dir *os.File, name string, flags int) (*os.File, error) {
	fd, err := unix.Openat(int(dir.Fd()), name, flags|unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// part is a part of a file that is not a hole.
type part struct{ Start, End int64 }

func partsOf(f *os.File, size int64) (all []part, err error) {
	for at := int64(0); at < size; {
		var p part
		p.Start, err = f.Seek(at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return all, nil
		}
		if err == nil {
			p.End, err = f.Seek(p.Start, unix.SEEK_HOLE)
		}
		if err != nil {
			return nil, err
		}
		p.End = min(p.End, size)
		all, at = append(all, p), p.End
	}
	return all, nil
}

// attributes returns the portable attributes of an open file, as records of its header.
func attributes(f *os.File) (map[string]string, error) {
	fd := int(f.Fd())
	list := make([]byte, 1<<16) // the kernel's maximum
	n, err := unix.Flistxattr(fd, list)
	if errors.Is(err, unix.ENOTSUP) || n == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(list[:n]), "\x00"), "\x00") {
		if !counts(name) {
			continue
		}
		value := make([]byte, 1<<16)
		n, err := unix.Fgetxattr(fd, name, value)
		if err != nil {
			return nil, fmt.Errorf("attribute %s: %w", name, err)
		}
		all[paxAttribute+name] = string(value[:n])
	}
	return all, nil
}

// counts reports whether an attribute is valid in another guest, too, unlike those that the
// overlay uses internally.
func counts(name string) bool {
	switch name {
	case opaque, "security.capability", "system.posix_acl_access", "system.posix_acl_default":
		return true
	}
	return strings.HasPrefix(name, "user.") && !strings.Contains(name, "=") // a header cannot represent those
}
