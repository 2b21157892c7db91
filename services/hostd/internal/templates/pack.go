package templates

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/template"
	"github.com/millrace/millrace/internal/part"
)

// Sink takes the parts of a tree, each as it is packed.
type Sink func(ctx context.Context, sum template.Sum, packed []byte) error

const (
	// maxPath bounds the paths in a copy, in bytes.
	maxPath = 16 << 10

	// maxDepth bounds the directories in each other: each is a descriptor while they are
	// packed, and a call for each path while they are unpacked.
	maxDepth = template.MaxDepth

	// maxHeld bounds the bytes that are held of a tree while it is packed: the names in a
	// directory, which are sorted, and of files that have more than one, and what is held
	// of directories while it is unpacked.
	maxHeld  = 256 << 20
	nameSize = 48  // what a name takes besides its bytes
	dirSize  = 256 // and a directory
	batch    = 512 // names read at a time

	xattrRecord  = "SCHILY.xattr."   // of a tar: an attribute, as GNU tar and star call it
	socketRecord = "MILLRACE.socket" // of a pipe that is a socket
)

// Pack gives the manifest of a copy of the directory dir, and its parts to sink,
// of which it holds one at a time: the same tree makes the same. Nobody may change what
// is in it meanwhile, but what is in it may be hostile. What is in an overlay's layer
// is kept: owners, modes, times, links, pipes, sockets, whiteouts and the user's
// attributes. Holes are packed as the zeros that they read as, and count. Invalid for
// what cannot be copied, as for more than most bytes.
func Pack(ctx context.Context, dir string, most int64, sink Sink) ([]byte, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close() //nolint:errcheck // nothing is written through it
	p, err := part.New()
	if err != nil {
		return nil, err
	}
	defer p.Close()
	w := newPacker(ctx, min(most, template.MaxTar))
	w.cut.Flush = func(b []byte) error {
		sum := template.SumOf(b)
		w.m.Parts = append(w.m.Parts, sum)
		return errors.Join(ctx.Err(), sink(ctx, sum, p.Pack(b)))
	}
	w.tar = tar.NewWriter(&w.cut)
	if err := w.add(root, "."); err != nil {
		return nil, err
	}
	if err := w.tar.Close(); err != nil {
		return nil, err
	}
	if err := w.cut.End(); err != nil {
		return nil, err
	}
	w.m.Arch, w.m.Exact, w.m.Tar = runtime.GOARCH, true, w.cut.N
	raw, _, err := w.m.Encode()
	return raw, err
}

// Measure is how many bytes Pack would give away, but for a little.
func Measure(ctx context.Context, dir string) (int64, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return 0, err
	}
	defer root.Close() //nolint:errcheck // it was only looked at
	w := newPacker(ctx, template.MaxTar)
	w.blind = true
	err = w.add(root, ".")
	return w.m.Size, err
}

// packer packs a tree.
type packer struct {
	//nolint:containedctx // a packer lives for one call
	ctx    context.Context
	tar    *tar.Writer
	cut    part.Cutter
	m      template.Manifest
	most   int64
	linked map[inode]string // files with several names: the first
	force  bool             // what its owner, who we are, may not read is made readable for a moment
	blind  bool             // nothing is read
	depth  int              // how many directories are open
	room   int              // bytes that may yet be held
}

func newPacker(ctx context.Context, most int64) *packer {
	return &packer{ctx: ctx, most: most, linked: make(map[inode]string), force: os.Geteuid() != 0, room: maxHeld}
}

type inode struct{ dev, ino uint64 }

// add packs what is at a path, and what is in it. in is the directory that it is in: by a
// path from the top a file would cost as many calls as it is deep.
func (w *packer) add(in *os.Root, name string) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	if len(name) > maxPath {
		return damaged("a path of more than %d bytes", maxPath)
	}
	fi, err := in.Lstat(path.Base(name))
	if err != nil {
		return err
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return kind.New(kind.Unimplemented, "copy files", name, "this system does not say what a file is")
	}
	h, ok, err := w.header(in, name, fi, st)
	if err != nil || !ok {
		return err
	}
	w.m.Files++
	w.m.Size += h.Size
	if w.m.Size > w.most || w.m.Files > template.MaxFiles {
		return kind.Newf(kind.Invalid, "copy files", "", "more than %d MiB or %d files are not copied", w.most>>20, template.MaxFiles)
	}
	switch {
	case fi.IsDir():
		return w.dir(in, name, h, fi)
	case w.blind:
		return nil
	case h.Typeflag == tar.TypeReg:
		return w.file(in, name, h, fi)
	}
	return w.tar.WriteHeader(h)
}

// header is how an entry begins; false: it is left out.
func (w *packer) header(in *os.Root, name string, fi fs.FileInfo, st *syscall.Stat_t) (*tar.Header, bool, error) {
	h := &tar.Header{
		Name: name, Mode: int64(st.Mode & 0o7777), Uid: int(st.Uid), Gid: int(st.Gid), //nolint:unconvert // the types differ between systems
		ModTime: fi.ModTime(), Format: tar.FormatPAX, PAXRecords: map[string]string{},
	}
	if st.Nlink > 1 && !fi.IsDir() {
		id := inode{uint64(st.Dev), st.Ino} //nolint:unconvert // the types differ between systems
		if first, ok := w.linked[id]; ok {
			h.Typeflag, h.Linkname = tar.TypeLink, first
			return h, true, nil
		}
		w.linked[id] = name
		if err := w.hold(name); err != nil {
			return nil, false, err
		}
	}
	var err error
	switch mode := fi.Mode(); {
	case mode.IsDir():
		h.Typeflag, h.Name = tar.TypeDir, name+"/"
	case mode.IsRegular():
		h.Typeflag, h.Size = tar.TypeReg, fi.Size()
	case mode&fs.ModeSymlink != 0:
		h.Typeflag, h.ModTime = tar.TypeSymlink, time.Unix(0, 0) // which cannot be set everywhere
		h.Linkname, err = in.Readlink(path.Base(name))
	case mode&fs.ModeNamedPipe != 0:
		h.Typeflag = tar.TypeFifo
	case mode&fs.ModeSocket != 0:
		h.Typeflag, h.PAXRecords[socketRecord] = tar.TypeFifo, "1"
	case mode&fs.ModeCharDevice != 0 && st.Rdev == 0: // a whiteout is the only device that a sandbox can make
		h.Typeflag = tar.TypeChar
	default:
		return nil, false, nil
	}
	return h, true, err
}

// dir packs a directory before what is in it, in the order of names.
func (w *packer) dir(in *os.Root, name string, h *tar.Header, fi fs.FileInfo) error {
	if w.depth++; w.depth > maxDepth {
		return kind.Newf(kind.Invalid, "copy files", "", "more than %d directories in each other are not copied", maxDepth)
	}
	defer func() { w.depth-- }()
	base := path.Base(name)
	if w.force && fi.Mode().Perm()&0o700 != 0o700 {
		if err := in.Chmod(base, fi.Mode()|0o700); err != nil {
			return err
		}
		defer in.Chmod(base, fi.Mode()) //nolint:errcheck // it is only less shut than it was
	}
	here, err := in.OpenRoot(base)
	if err != nil {
		return err
	}
	defer here.Close() //nolint:errcheck // nothing is written through it
	d, err := here.Open(".")
	if err != nil {
		return err
	}
	names, err := w.names(d)
	defer w.drop(names)
	if err == nil && !w.blind {
		err = addAttributes(h, d)
	}
	if err == nil {
		err = w.take(sizeOf(h))
	}
	if err = errors.Join(err, d.Close()); err != nil {
		return err
	}
	if !w.blind {
		if err := w.tar.WriteHeader(h); err != nil {
			return err
		}
	}
	for _, n := range names {
		if err := w.add(here, path.Join(name, n)); err != nil {
			return err
		}
	}
	return nil
}

// names are those in a directory, sorted. They are held until drop, also on error.
func (w *packer) names(d *os.File) (all []string, err error) {
	for {
		some, err := d.Readdirnames(batch)
		all = append(all, some...)
		if err := errors.Join(w.ctx.Err(), w.hold(some...)); err != nil {
			return all, err
		}
		if errors.Is(err, io.EOF) {
			slices.Sort(all)
			return all, nil
		}
		if err != nil {
			return all, err
		}
	}
}

// hold takes room for names.
func (w *packer) hold(names ...string) error {
	n := 0
	for _, name := range names {
		n += nameSize + len(name)
	}
	return w.take(n)
}

// take fails where more would be held than may be.
func (w *packer) take(n int) error {
	if w.room -= n; w.room < 0 {
		return kind.New(kind.Invalid, "copy files", "", "so many directories, names in one, and files with several names are not copied")
	}
	return nil
}

// sizeOf is what is held of a directory while a tree is unpacked.
func sizeOf(h *tar.Header) int {
	n := dirSize + len(h.Name)
	for key, value := range h.PAXRecords {
		if strings.HasPrefix(key, xattrRecord) {
			n += nameSize + len(key) + len(value)
		}
	}
	return n
}

func (w *packer) drop(names []string) {
	for _, n := range names {
		w.room += nameSize + len(n)
	}
}

func (w *packer) file(in *os.Root, name string, h *tar.Header, fi fs.FileInfo) error {
	base := path.Base(name)
	const flags = os.O_RDONLY | syscall.O_NOFOLLOW | syscall.O_NONBLOCK
	f, err := in.OpenFile(base, flags, 0)
	if errors.Is(err, fs.ErrPermission) && w.force {
		if err := in.Chmod(base, fi.Mode()|0o400); err != nil {
			return err
		}
		f, err = in.OpenFile(base, flags, 0)
		err = errors.Join(err, in.Chmod(base, fi.Mode()))
	}
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // it was only read
	if err := addAttributes(h, f); err != nil {
		return err
	}
	if err := w.tar.WriteHeader(h); err != nil {
		return err
	}
	n, err := io.Copy(w.tar, io.LimitReader(f, h.Size))
	if err == nil && n != h.Size {
		err = kind.Newf(kind.Conflict, "copy files", name, "it was changed while it was copied")
	}
	return err
}

// addAttributes adds the user's attributes of an open file to its entry.
func addAttributes(h *tar.Header, f *os.File) error {
	all, err := attributes(f)
	for name, value := range all {
		if strings.Contains(name, "=") {
			continue // no tar can say that
		}
		h.PAXRecords[xattrRecord+name] = value
	}
	return err
}
