//go:build linux

package files

import (
	"io/fs"
	"path"
	"strings"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/millrace/millrace/events/field"
)

// entry is the information about a name in a directory.
type entry struct {
	path   string
	st     unix.Stat_t // of the name itself
	link   bool
	target string      // of a link: the path that it leads to, or its own path if dangling
	at     unix.Stat_t // of a link: the file that it leads to; Mode 0 if dangling
	meta   map[string]string
	born   unix.StatxTimestamp // when the file was created; zero: unknown
}

// Numbers of filesystem.FileType.
const (
	typeFile      = 1
	typeDirectory = 2
	typeSymlink   = 3
)

// stat returns the entry of a path; a link at its end is not followed.
func (o *op) stat(p string) (entry, error) {
	if p == "/" {
		e := entry{path: p}
		return e, unix.Fstatat(o.root, "", &e.st, unix.AT_EMPTY_PATH)
	}
	dir, base, err := o.openParent(p)
	if err != nil {
		return entry{}, err
	}
	defer closeFd(dir)
	return o.statAt(dir, base, p)
}

// statAt returns the entry of a name in a directory, as path p.
func (o *op) statAt(dir int, name, p string) (entry, error) {
	e := entry{path: p}
	if err := unix.Fstatat(dir, name, &e.st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return e, err
	}
	switch e.st.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		o.follow(&e)
	case unix.S_IFREG, unix.S_IFDIR:
		e.meta = readMeta(procPath(dir) + "/" + name)
	}
	return e, nil
}

// follow finds out where a link leads.
func (o *op) follow(e *entry) {
	e.link, e.target = true, e.path
	fd, err := o.open(e.path, unix.O_PATH)
	if err != nil {
		return
	}
	defer closeFd(fd)
	if unix.Fstat(fd, &e.at) != nil {
		return
	}
	if p, ok := o.whereIs(fd); ok {
		e.target = p
	}
}

// appendEntry appends the bytes of a filesystem.EntryInfo, by hand because the
// generated type would double the size of the shim.
func (o *op) appendEntry(b []byte, e *entry) []byte {
	shown := &e.st
	if e.link {
		shown = &e.at // type and mode are those of the link's target, as in E2B
	}
	b = appendString(b, 1, path.Base(e.path))
	b = field.AppendUint(b, 2, fileType(shown.Mode))
	b = appendString(b, 3, e.path)
	b = field.AppendUint(b, 4, uint64(e.st.Size))
	b = field.AppendUint(b, 5, uint64(shown.Mode&0o777))
	b = appendString(b, 6, modeOf(e.st.Mode).String())
	b = appendString(b, 7, o.nameOf(false, e.st.Uid))
	b = appendString(b, 8, o.nameOf(true, e.st.Gid))
	b = appendTime(b, 9, e.st.Mtim)
	if e.link {
		b = appendString(b, 10, e.target)
	}
	for k, v := range e.meta {
		pair := appendString(appendString(nil, 1, k), 2, v)
		b = field.PutBytes(b, 11, pair)
	}
	if e.born.Sec > 0 {
		b = appendTime(b, fieldCreated, unix.Timespec{Sec: e.born.Sec, Nsec: int64(e.born.Nsec)})
	}
	if o.cfg.Times {
		b = appendTime(b, fieldAccessed, e.st.Atim)
		b = appendTime(b, fieldChanged, e.st.Ctim)
	}
	return b
}

const (
	fieldAccessed = 1000
	fieldChanged  = 1001
	fieldCreated  = 1002
)

func appendTime(b []byte, num protowire.Number, at unix.Timespec) []byte {
	var buf [24]byte
	t := field.AppendUint(buf[:0], 1, uint64(at.Sec))
	t = field.AppendUint(t, 2, uint64(at.Nsec))
	return field.PutBytes(b, num, t)
}

// nameOf returns the name of an owner or a group, looked up once per request.
func (o *op) nameOf(group bool, id uint32) string {
	key := uint64(id)
	if group {
		key |= 1 << 32
	}
	name, ok := o.name[key]
	if !ok {
		name = strings.ToValidUTF8(o.cfg.Name(group, id), "?")
		o.name[key] = name
	}
	return name
}

func fileType(mode uint32) uint64 {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return typeFile
	case unix.S_IFDIR:
		return typeDirectory
	case unix.S_IFLNK:
		return typeSymlink
	}
	return 0
}

// modeOf returns a mode in the form of package fs.
func modeOf(m uint32) fs.FileMode {
	mode := fs.FileMode(m & 0o777)
	switch m & unix.S_IFMT {
	case unix.S_IFDIR:
		mode |= fs.ModeDir
	case unix.S_IFLNK:
		mode |= fs.ModeSymlink
	case unix.S_IFIFO:
		mode |= fs.ModeNamedPipe
	case unix.S_IFSOCK:
		mode |= fs.ModeSocket
	case unix.S_IFBLK:
		mode |= fs.ModeDevice
	case unix.S_IFCHR:
		mode |= fs.ModeDevice | fs.ModeCharDevice
	}
	for bit, to := range map[uint32]fs.FileMode{unix.S_ISUID: fs.ModeSetuid, unix.S_ISGID: fs.ModeSetgid, unix.S_ISVTX: fs.ModeSticky} {
		if m&bit != 0 {
			mode |= to
		}
	}
	return mode
}

// appendString appends a string; a name that is not UTF-8 is approximated, since
// protobuf's strings must be.
func appendString(b []byte, num protowire.Number, v string) []byte {
	return field.PutString(b, num, strings.ToValidUTF8(v, "�"))
}
