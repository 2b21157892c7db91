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

// Sink receives the parts of a tree, each as it is packed.
type Sink func(ctx context.Context, sum template.Sum, packed []byte) error

const (
	// maxPath is the maximum length of a path in a copy, in bytes.
	maxPath = 16 << 10

	// maxDepth is the maximum depth of directories: each is a descriptor while they are
	// packed, and a call for each path while they are unpacked.
	maxDepth = template.MaxDepth

	// maxMemory is the maximum memory for a tree, in bytes. Packing needs it to sort the names in
	// a directory and to remember files with several names, unpacking for open directories.
	maxMemory = 256 << 20
	nameSize  = 48  // memory for a name besides its bytes
	dirSize   = 256 // and for a directory
	batch     = 512 // names read at a time

	xattrRecord  = "SCHILY.xattr."   // of a tar: an attribute, in GNU tar's and star's form
	socketRecord = "MILLRACE.socket" // of a pipe that stands for a socket
)

// Pack returns the manifest of a copy of the directory dir, and passes its parts to sink,
// one at a time: the same tree has the same parts. Its contents must not change
// meanwhile, but may be hostile. The contents of an overlay's layer are preserved:
// owners, modes, times, links, pipes, sockets, whiteouts and the user's
// attributes. Holes are packed as zeros and count as bytes.
//
// Pack returns Invalid if an entry cannot be copied, or if the tree has more than most bytes.
func Pack(ctx context.Context, dir string, most int64, sink Sink) ([]byte, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
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

// Measure returns approximately how many bytes Pack would pass on.
func Measure(ctx context.Context, dir string) (int64, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return 0, err
	}
	defer root.Close()
	w := newPacker(ctx, template.MaxTar)
	w.blind = true
	err = w.add(root, ".")
	return w.m.Size, err
}

// packer packs a tree.
type packer struct {
	// a packer exists for one call
	ctx    context.Context
	tar    *tar.Writer
	cut    part.Cutter
	m      template.Manifest
	most   int64
	linked map[inode]string // first name of each file with several names
	force  bool             // files that their owner, this user, may not read are made readable for a moment
	blind  bool             // contents are not read
	depth  int              // number of open directories
	memory int              // memory left, in bytes
}

func newPacker(ctx context.Context, most int64) *packer {
	return &packer{ctx: ctx, most: most, linked: make(map[inode]string), force: os.Geteuid() != 0, memory: maxMemory}
}

type inode struct{ dev, ino uint64 }

// add packs the entry at a path, and its contents. in is its parent directory. A path from the
// top would cost one call for each level above the file.
func (w *packer) add(in *os.Root, name string) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	if len(name) > maxPath {
		return damaged("a path exceeds %d bytes", maxPath)
	}
	fi, err := in.Lstat(path.Base(name))
	if err != nil {
		return err
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return kind.New(kind.Unimplemented, "copy files", name, "file types are not supported on this system")
	}
	h, ok, err := w.header(in, name, fi, st)
	if err != nil || !ok {
		return err
	}
	w.m.Files++
	w.m.Size += h.Size
	if w.m.Size > w.most || w.m.Files > template.MaxFiles {
		return kind.Newf(kind.Invalid, "copy files", "", "the tree exceeds the limit of %d MiB or %d files", w.most>>20, template.MaxFiles)
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

// header returns the header of an entry; false: it is left out.
func (w *packer) header(in *os.Root, name string, fi fs.FileInfo, st *syscall.Stat_t) (*tar.Header, bool, error) {
	h := &tar.Header{
		Name: name, Mode: int64(st.Mode & 0o7777), Uid: int(st.Uid), Gid: int(st.Gid),
		ModTime: fi.ModTime(), Format: tar.FormatPAX, PAXRecords: map[string]string{},
	}
	if st.Nlink > 1 && !fi.IsDir() {
		id := inode{uint64(st.Dev), st.Ino}
		if first, ok := w.linked[id]; ok {
			h.Typeflag, h.Linkname = tar.TypeLink, first
			return h, true, nil
		}
		w.linked[id] = name
		if err := w.rememberNames(name); err != nil {
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
		h.Typeflag, h.ModTime = tar.TypeSymlink, time.Unix(0, 0) // cannot be set on all systems
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

// dir packs a directory before its contents, in the order of names.
func (w *packer) dir(in *os.Root, name string, h *tar.Header, fi fs.FileInfo) error {
	if w.depth++; w.depth > maxDepth {
		return kind.Newf(kind.Invalid, "copy files", "", "directories are nested deeper than %d levels", maxDepth)
	}
	defer func() { w.depth-- }()
	base := path.Base(name)
	if w.force && fi.Mode().Perm()&0o700 != 0o700 {
		if err := in.Chmod(base, fi.Mode()|0o700); err != nil {
			return err
		}
		defer in.Chmod(base, fi.Mode()) //nolint:errcheck // at worst it remains more permissive
	}
	here, err := in.OpenRoot(base)
	if err != nil {
		return err
	}
	defer here.Close()
	d, err := here.Open(".")
	if err != nil {
		return err
	}
	names, err := w.names(d)
	defer w.forgetNames(names)
	if err == nil && !w.blind {
		err = addAttributes(h, d)
	}
	if err == nil {
		err = w.reserve(sizeOf(h))
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

// names returns the sorted names in a directory. Their memory is accounted until drop, also on error.
func (w *packer) names(d *os.File) (all []string, err error) {
	for {
		some, err := d.Readdirnames(batch)
		all = append(all, some...)
		if err := errors.Join(w.ctx.Err(), w.rememberNames(some...)); err != nil {
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

// rememberNames accounts for the memory of names.
func (w *packer) rememberNames(names ...string) error {
	n := 0
	for _, name := range names {
		n += nameSize + len(name)
	}
	return w.reserve(n)
}

// reserve fails if the memory limit is exceeded.
func (w *packer) reserve(n int) error {
	if w.memory -= n; w.memory < 0 {
		return kind.New(kind.Invalid, "copy files", "", "too many directories, names in a directory, or files with several names")
	}
	return nil
}

// sizeOf returns the memory for a directory while a tree is unpacked.
func sizeOf(h *tar.Header) int {
	n := dirSize + len(h.Name)
	for key, value := range h.PAXRecords {
		if strings.HasPrefix(key, xattrRecord) {
			n += nameSize + len(key) + len(value)
		}
	}
	return n
}

func (w *packer) forgetNames(names []string) {
	for _, n := range names {
		w.memory += nameSize + len(n)
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
	defer f.Close()
	if err := addAttributes(h, f); err != nil {
		return err
	}
	if err := w.tar.WriteHeader(h); err != nil {
		return err
	}
	n, err := io.Copy(w.tar, io.LimitReader(f, h.Size))
	if err == nil && n != h.Size {
		err = kind.Newf(kind.Conflict, "copy files", name, "the file changed while it was copied")
	}
	return err
}

// addAttributes adds the user's attributes of an open file to its entry.
func addAttributes(h *tar.Header, f *os.File) error {
	all, err := attributes(f)
	for name, value := range all {
		if strings.Contains(name, "=") {
			continue // a tar cannot represent it
		}
		h.PAXRecords[xattrRecord+name] = value
	}
	return err
}
