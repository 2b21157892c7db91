//go:build linux

package gvisor

import (
	"archive/tar"
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/layers"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/live"
	"github.com/millrace/millrace/services/hostd/internal/driver/namespace/nsinit"
)

// unpacker makes a layer from gVisor's list of the files that it holds: a tar with each
// directory before its contents, in which a file has its size and the positions of its
// contents in the store. The sandbox may control the list: links are not followed,
// nothing is made outside of the layer, and of a header only the fields needed later are
// kept, since there are as many as there are files.
type unpacker struct {
	store  *os.File
	left   int64           // bytes of it not yet assigned to a file
	parts  bool            // /usr and /etc are parts of their own
	seeded map[string]bool // initial files of the sandbox
	owners *layers.Owners  // nil: owners can be set on the files

	top       *os.File  // of the layer
	dir       *os.File  // the current one
	path      []pathDir // path to dir, from the root on
	shut      []pathDir // directories whose permissions are restricted at the end
	pathBytes int       // bytes of their paths

	// spare has the unchanged files in seeded, by their names inside: their temporary names
	// beside the parts until the end, since they may have other names, too.
	spare map[string]string
	seen  map[string]bool // files in seeded that still exist
}

// pathDir is a directory on the current path.
type pathDir struct {
	name string // inside; "" for the root
	at   string // in the layer
	head *tar.Header
}

// pathDirOf returns the entry of a directory. A header's strings share memory with its whole record.
func pathDirOf(inside, at string, h *tar.Header) pathDir {
	return pathDir{strings.Clone(inside), at, &tar.Header{Mode: h.Mode, Uid: h.Uid, Gid: h.Gid, ModTime: h.ModTime}}
}

const (
	maxPath      = unix.PathMax // bytes of a path inside
	maxPathBytes = 64 << 20     // bytes of the paths of directories to be restricted
)

var errList = errors.New("malformed list of files")

// unpack makes a layer of list, without the unchanged files in seeded. It returns
// Precondition for what a layer cannot represent.
func unpack(ctx context.Context, layer *layers.Layer, list io.Reader, store *os.File, parts bool, seeded map[string]bool) (err error) {
	st, err := store.Stat()
	if err != nil {
		return err
	}
	u := unpacker{store: store, left: st.Size(), parts: parts, seeded: seeded, spare: map[string]string{}, seen: map[string]bool{}}
	for _, part := range nsinit.Uppers() {
		if err := os.Mkdir(filepath.Join(layer.Dir, part), 0o755); err != nil {
			return err
		}
	}
	if u.top, err = os.Open(layer.Dir); err != nil {
		return err
	}
	defer u.top.Close()
	if os.Geteuid() != 0 {
		if u.owners, err = layer.Owners(); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, u.owners.Close()) }()
	}
	defer func() { u.dir.Close() }()
	for r := tar.NewReader(bufio.NewReaderSize(list, 1<<18)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return u.end()
		}
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			err = u.entry(ctx, h, r)
		}
		if err != nil {
			return err
		}
	}
}

// entry makes what a header describes.
func (u *unpacker) entry(ctx context.Context, h *tar.Header, r io.Reader) error {
	inside, ok := clean(h.Name)
	switch {
	case len(inside) > maxPath:
		return kind.Newf(kind.Precondition, "snapshot", "", "files with paths longer than %d bytes cannot be saved: /%.100s...", maxPath, inside)
	case !ok:
		return fmt.Errorf("%w: %q", errList, h.Name)
	case inside == "":
		if len(u.path) > 0 || h.Typeflag != tar.TypeDir {
			return errList
		}
		return u.enter(u.top, nsinit.Uppers()[0], "", h)
	}
	dir, name := path.Split(inside)
	if err := u.moveTo(strings.TrimSuffix(dir, "/")); err != nil {
		return err
	}
	err := u.make(ctx, inside, name, h, r)
	if err != nil {
		err = fmt.Errorf("keep /%s: %w", inside, err)
	}
	return err
}

// clean returns a path without the prefix and suffix that gVisor adds.
func clean(name string) (string, bool) {
	if name == "./" {
		return "", true
	}
	name, ok := strings.CutPrefix(strings.TrimSuffix(name, "/"), "./")
	for part := range strings.SplitSeq(name, "/") {
		ok = ok && part != "" && part != "." && part != ".."
	}
	return name, ok
}

// moveTo leaves directories until the current one is the parent of name.
func (u *unpacker) moveTo(name string) error {
	for n := len(u.path); n > 0; n = len(u.path) {
		if u.path[n-1].name == name {
			return nil
		}
		if err := u.leave(); err != nil {
			return err
		}
	}
	return errList
}

// make makes an entry in the current directory.
func (u *unpacker) make(ctx context.Context, inside, name string, h *tar.Header, r io.Reader) error {
	at, own, dir := int(u.dir.Fd()), u.part(inside), u.dir
	if u.seeded[inside] {
		u.seen[strings.Clone(inside)] = true
	}
	if own != "" && h.Typeflag != tar.TypeDir {
		return kind.Newf(kind.Precondition, "snapshot", "", "/%s was removed, which a snapshot of files cannot represent", inside)
	}
	switch h.Typeflag {
	case tar.TypeDir:
		if own != "" {
			if opaque(h) {
				return kind.Newf(kind.Precondition, "snapshot", "", "/%s was removed and recreated, which a snapshot of files cannot represent", inside)
			}
			return u.enter(u.top, own, inside, h)
		}
		if err := unix.Mkdirat(at, name, 0o700); err != nil {
			return err
		}
		in := u.path[len(u.path)-1]
		return u.enter(u.dir, in.at+"/"+name, inside, h)
	case tar.TypeReg:
		if u.seeded[inside] && h.ModTime.Unix() == seedTime {
			dir, name = u.top, fmt.Sprintf("spare.%d", len(u.spare))
			u.spare[strings.Clone(inside)] = name
		}
		return u.file(ctx, dir, inside, name, h, r)
	case tar.TypeLink:
		if err := u.link(name, h); err != nil || u.owners == nil {
			return err
		}
		return u.own(inside, h, nil)
	case tar.TypeSymlink, tar.TypeFifo:
		return u.special(inside, name, h)
	case tar.TypeChar:
		if h.Devmajor == 0 && h.Devminor == 0 { // a whiteout is the only device that a sandbox can make
			return unix.Mknodat(at, name, unix.S_IFCHR, 0)
		}
	}
	return nil
}

// special makes a link or a pipe in the current directory.
func (u *unpacker) special(inside, name string, h *tar.Header) error {
	at := int(u.dir.Fd())
	create := func() error { return unix.Symlinkat(h.Linkname, at, name) }
	if h.Typeflag == tar.TypeFifo {
		create = func() error { return unix.Mknodat(at, name, unix.S_IFIFO|0o600, 0) }
	}
	if err := create(); err != nil {
		return err
	}
	if err := u.own(inside, h, func(uid, gid int) error {
		return unix.Fchownat(at, name, uid, gid, unix.AT_SYMLINK_NOFOLLOW)
	}); err != nil {
		return err
	}
	if h.Typeflag != tar.TypeSymlink {
		if err := unix.Fchmodat(at, name, mode(h), 0); err != nil {
			return err
		}
	}
	return unix.UtimesNanoAt(at, name, times(h), unix.AT_SYMLINK_NOFOLLOW)
}

// part returns the directory in the layer that has a top-level directory of its own.
func (u *unpacker) part(inside string) string {
	if all := nsinit.Uppers(); u.parts && slices.Contains(all[1:], inside+".upper") {
		return inside + ".upper"
	}
	return ""
}

// enter moves into an existing directory of the open directory in; at is its path in the
// layer. It sets the directory's attributes at once, so that they need not be kept.
func (u *unpacker) enter(in *os.File, at, inside string, h *tar.Header) error {
	child, err := openIn(int(in.Fd()), path.Base(at))
	if err != nil {
		return err
	}
	u.dir.Close()
	u.dir, u.path = child, append(u.path, pathDirOf(inside, at, h))
	return setAttributes(int(child.Fd()), h)
}

func openIn(at int, name string) (*os.File, error) {
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// leave sets owner, mode and times of the current directory, and goes up.
func (u *unpacker) leave() error {
	last := len(u.path) - 1
	p, up := u.path[last], u.dir
	err := u.hide(p.name)
	if err != nil {
		return err
	}
	switch last {
	case 0:
	case 1: // a part has another path than inside
		up, err = openIn(int(u.top.Fd()), u.path[0].at)
	default:
		up, err = openIn(int(u.dir.Fd()), "..")
	}
	if err != nil {
		return err
	}
	u.path = u.path[:last]
	if err := u.seal(int(u.dir.Fd()), p.name, p.head); err != nil {
		up.Close()
		return fmt.Errorf("keep /%s: %w", p.name, err)
	}
	if u.owners != nil && mode(p.head)&0o700 != 0o700 {
		if u.pathBytes += len(p.name) + len(p.at); u.pathBytes > maxPathBytes {
			up.Close()
			return kind.New(kind.Precondition, "snapshot", "", "too many directories that their owner may not enter")
		}
		u.shut = append(u.shut, p)
	} else if err := unix.Fchmod(int(u.dir.Fd()), mode(p.head)); err != nil {
		up.Close()
		return err
	}
	if last > 0 {
		u.dir.Close()
		u.dir = up
	}
	return nil
}

// hide makes a whiteout of each file that was removed from a home, in the current directory: sandboxes
// made from the layer would have it again otherwise.
func (u *unpacker) hide(dir string) error {
	if !u.parts || dir != home && dir != "root" {
		return nil
	}
	for inside, began := range u.seeded {
		if !began || path.Dir(inside) != dir || u.seen[inside] {
			continue
		}
		if err := unix.Mknodat(int(u.dir.Fd()), path.Base(inside), unix.S_IFCHR, 0); err != nil {
			return fmt.Errorf("record that /%s was removed: %w", inside, err)
		}
	}
	return nil
}

// end leaves all directories and removes spare files. Directories that an ordinary user may
// not enter are restricted last, when nothing has to pass through them any more.
func (u *unpacker) end() error {
	for len(u.path) > 0 {
		if err := u.leave(); err != nil {
			return err
		}
	}
	for _, name := range u.spare {
		if err := unix.Unlinkat(int(u.top.Fd()), name, 0); err != nil {
			return err
		}
	}
	if len(u.shut) == 0 {
		return nil
	}
	root, err := os.OpenRoot(u.top.Name())
	if err != nil {
		return err
	}
	defer root.Close()
	for _, p := range u.shut {
		if err := root.Chmod(p.at, p.head.FileInfo().Mode()); err != nil {
			return err
		}
	}
	return nil
}

// setAttributes sets the attributes of an open file or directory.
func setAttributes(fd int, h *tar.Header) error {
	for key, value := range h.PAXRecords {
		name, ok := strings.CutPrefix(key, paxAttribute)
		if !ok || !strings.HasPrefix(name, "user.") || strings.HasPrefix(name, "user.overlay.") {
			continue
		}
		if err := unix.Fsetxattr(fd, name, []byte(value), 0); err != nil {
			return fmt.Errorf("attribute %s: %w", name, err)
		}
	}
	if opaque(h) {
		if err := unix.Fsetxattr(fd, layers.Opaque, []byte("y"), 0); err != nil {
			return fmt.Errorf("attribute %s: %w", layers.Opaque, err)
		}
	}
	return nil
}

// seal sets owner and times of an open file or directory.
func (u *unpacker) seal(fd int, inside string, h *tar.Header) error {
	if err := u.own(inside, h, func(uid, gid int) error { return unix.Fchown(fd, uid, gid) }); err != nil {
		return err
	}
	t := times(h)
	return unix.UtimesNanoAt(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), t, 0)
}

// own sets the owner of a file, or records it.
func (u *unpacker) own(inside string, h *tar.Header, give func(uid, gid int) error) error {
	uid, gid := inRange(h.Uid), inRange(h.Gid)
	if u.owners == nil {
		return give(uid, gid)
	}
	if uid != 0 || gid != 0 {
		u.owners.Add(layers.Owner{UID: uint32(uid), GID: uint32(gid), Path: inside})
	}
	return nil
}

// inRange maps ids that not all drivers have to the user nobody.
func inRange(id int) int {
	const nobody = 65534
	if id < 0 || id >= nsinit.RangeSize {
		return nobody
	}
	return id
}

func mode(h *tar.Header) uint32 { return uint32(h.Mode & 0o7777) }

// times returns the times, which may be of any year: a sandbox may set any.
func times(h *tar.Header) []unix.Timespec {
	t := unix.Timespec{Sec: h.ModTime.Unix(), Nsec: int64(h.ModTime.Nanosecond())}
	return []unix.Timespec{t, t}
}

const paxAttribute = "SCHILY.xattr."

// opaque reports whether a directory hides the layers below it.
func opaque(h *tar.Header) bool { return h.PAXRecords[paxAttribute+"trusted.overlay.opaque"] == "y" }

// segment is a part of a file and its position in the store.
type segment struct{ Start, End, At uint64 }

// file makes a regular file.
func (u *unpacker) file(ctx context.Context, dir *os.File, inside, name string, h *tar.Header, r io.Reader) error {
	var size uint64
	if err := binary.Read(r, binary.LittleEndian, &size); err != nil {
		return fmt.Errorf("%w: %w", errList, err)
	}
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	if err := f.Truncate(int64(size)); err != nil {
		return err
	}
	for {
		var s segment
		err := binary.Read(r, binary.LittleEndian, &s)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil || s.Start > s.End || s.At > math.MaxInt64 {
			return fmt.Errorf("%w: %v, %w", errList, s, err)
		}
		if s.End = min(s.End, size); s.Start >= s.End {
			continue
		}
		if u.left -= int64(s.End - s.Start); u.left < 0 {
			return fmt.Errorf("%w: its files exceed the store", errList)
		}
		if err := live.CopyRange(ctx, f, int64(s.Start), u.store, int64(s.At), int64(s.End-s.Start)); err != nil {
			return err
		}
	}
	if err := errors.Join(setAttributes(fd, h), u.seal(fd, inside, h)); err != nil {
		return err
	}
	if err := unix.Fchmod(fd, mode(h)); err != nil { // after chown, which clears set-uid
		return err
	}
	return f.Close()
}

// link makes another name of an existing file.
func (u *unpacker) link(name string, h *tar.Header) error {
	first, ok := clean(h.Linkname)
	if !ok || first == "" {
		return fmt.Errorf("%w: a link to %q", errList, h.Linkname)
	}
	if spare, ok := u.spare[first]; ok {
		return unix.Linkat(int(u.top.Fd()), spare, int(u.dir.Fd()), name, 0)
	}
	dir, base := path.Split(first)
	in, err := openIn(int(u.top.Fd()), nsinit.Uppers()[0])
	if err != nil {
		return err
	}
	defer func() { in.Close() }()
	for n, part := range strings.Split(strings.TrimSuffix(dir, "/"), "/") {
		if part == "" {
			break
		}
		at, entry := in, part
		if own := u.part(part); n == 0 && own != "" {
			at, entry = u.top, own
		}
		next, err := openIn(int(at.Fd()), entry)
		if err != nil {
			return err
		}
		in.Close()
		in = next
	}
	return unix.Linkat(int(in.Fd()), base, int(u.dir.Fd()), name, 0)
}
