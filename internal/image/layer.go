package image

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"path"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/millrace/millrace/events/kind"
)

// Layer is an uncompressed tar that can be read repeatedly.
type Layer struct {
	Open func() (io.ReadCloser, error)
	Sum  string // SHA-256 in hexadecimal; empty: unknown
}

const (
	whiteout = ".wh."
	opaque   = ".wh..wh..opq"
	reserved = ".wh..wh." // of other layered file systems

	maxUID  = 1<<16 - 1 // highest id in a sandbox
	nobody  = 65534
	maxKept = 1 << 20 // maximum size in bytes of a file in memory
)

// entry identifies a tar entry by its layer's number and its index there.
type entry struct {
	layer, at int
}

// read calls f with each entry of a layer. left is the number of bytes that all layers may
// still unpack to.
func (l *Layer) read(ctx context.Context, left *int64, f func(at int, h *tar.Header, body io.Reader) error) error {
	raw, err := l.Open()
	if err != nil {
		return readError(err)
	}
	defer raw.Close()
	sum := sha256.New()
	bounded := &bounded{r: io.TeeReader(raw, sum), left: left}
	r := tar.NewReader(bounded)
	for at := 0; ; at++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return bounded.explain(err)
		}
		if err := f(at, h, r); err != nil {
			return bounded.explain(err)
		}
	}
	if _, err := io.Copy(io.Discard, bounded); err != nil { // the checksum includes data after the archive
		return bounded.explain(err)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); l.Sum != "" && got != l.Sum {
		return invalid("a layer's checksum is %s, want %s", got, l.Sum)
	}
	return nil
}

// bounded is a reader that fails beyond the maximum unpacked size.
type bounded struct {
	r    io.Reader
	left *int64
	err  error // error of r other than io.EOF
}

var errTooLarge = invalid("it exceeds the maximum unpacked size (see --max-size)")

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if *b.left -= int64(n); *b.left < 0 {
		return 0, errTooLarge
	}
	if err != nil && !errors.Is(err, io.EOF) {
		b.err = err
	}
	return n, err
}

// explain classifies an error: Invalid if the image's bytes are wrong, and the source's
// error (see unread) if they cannot be read.
func (b *bounded) explain(err error) error {
	if errors.Is(err, tar.ErrHeader) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, tar.ErrInsecurePath) {
		return invalid("a layer is damaged: %s", err)
	}
	if errors.Is(err, zstd.ErrWindowSizeExceeded) || errors.Is(err, zstd.ErrDecoderSizeExceeded) {
		return invalid("a layer requires more than %d MiB of memory to unpack: %s", maxWindow>>20, err)
	}
	if b.err != nil && errors.Is(err, b.err) {
		return readError(err)
	}
	return err
}

// readError returns an error for a layer that its source cannot deliver. Its Kind is that of
// the cause, else Unavailable.
func readError(err error) error {
	if known, ok := errors.AsType[*kind.Error](err); ok {
		return known
	}
	return &kind.Error{Op: "read layer", Kind: kind.Unavailable, Err: err, Msg: "a layer cannot be read: " + err.Error()}
}

// apply applies an entry of a layer to the tree.
func (t *tree) apply(e entry, h *tar.Header, body io.Reader) error {
	names, err := cleanPath(h.Name)
	if err != nil {
		return err
	}
	if len(names) == 0 { // the root itself
		if h.Typeflag == tar.TypeDir {
			t.root.inode = inodeOf(e, h)
		}
		return nil
	}
	base := names[len(names)-1]
	if h.Typeflag == tar.TypeXGlobalHeader || strings.HasPrefix(base, reserved) && base != opaque {
		return nil
	}
	dir, err := t.walk(t.root, names[:len(names)-1], e.layer, true)
	if err != nil {
		return err
	}
	switch name, out := strings.CutPrefix(base, whiteout); {
	case base == opaque:
		t.hideAll(dir, e.layer)
		return nil
	case out:
		t.hide(dir, name, e.layer)
		return nil
	}
	return t.add(dir, base, names, e, h, body)
}

func (t *tree) add(dir *node, base string, names []string, e entry, h *tar.Header, body io.Reader) error {
	switch h.Typeflag {
	case tar.TypeDir:
		return t.setDir(dir, base, inodeOf(e, h), e.layer)
	case tar.TypeReg, tar.TypeGNUSparse:
		f := inodeOf(e, h)
		if t.left -= f.size; t.left < 0 || f.size < 0 {
			return errTooLarge
		}
		if p := path.Join(names...); p == passwdFile || p == groupFile {
			return t.keep(dir, base, f, body)
		}
		_, err := t.put(dir, base, f, e.layer)
		return err
	case tar.TypeSymlink:
		if h.Linkname == "" || len(h.Linkname) > maxLink || strings.ContainsRune(h.Linkname, 0) {
			return invalid("%.80q: a link with an empty or too long target", h.Name)
		}
		_, err := t.put(dir, base, inodeOf(e, h), e.layer)
		return err
	case tar.TypeLink:
		return t.hardlink(dir, base, e, h)
	case tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		if names[0] == "dev" {
			return nil // a sandbox mounts its own /dev
		}
		return invalid("%q is a device or a pipe, which templates cannot have", h.Name)
	}
	return invalid("%q has the unknown type %q", h.Name, h.Typeflag)
}

// keep puts a file into the tree together with its body.
func (t *tree) keep(dir *node, base string, f *inode, body io.Reader) error {
	if err := f.load(base, body); err != nil {
		return err
	}
	_, err := t.put(dir, base, f, f.layer)
	return err
}

// load reads a file's body into memory, which the caller accounts for. It returns Invalid
// if the body is too large or has changed since the first read.
func (f *inode) load(name string, body io.Reader) error {
	if f.size > maxKept {
		return invalid("/etc/%s has %d bytes", name, f.size)
	}
	var err error
	if f.body, err = io.ReadAll(io.LimitReader(body, maxKept)); err != nil {
		return err
	}
	if int64(len(f.body)) != f.size {
		return invalid("%q changed while it was read", "/etc/"+name)
	}
	f.inMemory = true
	return nil
}

// loadAccounts loads /etc/passwd and /etc/group if they were not loaded before, because
// they are links or hard links to other files.
func (t *tree) loadAccounts(ctx context.Context, layers []Layer, most int64) error {
	for _, p := range []string{passwdFile, groupFile} {
		n, err := t.find(p)
		switch {
		case err != nil:
			return err
		case n == nil || n.inMemory:
			continue
		case n.dir:
			return invalid("its /%s must be a file", p)
		}
		left := most
		err = layers[n.inode.layer-1].read(ctx, &left, func(at int, _ *tar.Header, body io.Reader) error {
			if at != n.at {
				return nil
			}
			return n.load(path.Base(p), body)
		})
		if err == nil {
			err = t.account(len(n.body))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// hardlink adds a name for the file that has the old name now; a higher layer may later
// replace the file of the old name only.
func (t *tree) hardlink(dir *node, base string, e entry, h *tar.Header) error {
	to, err := cleanPath(h.Linkname)
	if err != nil {
		return err
	}
	var old *node
	if len(to) > 0 {
		from, err := t.walk(t.root, to[:len(to)-1], e.layer, false)
		if err != nil {
			return err
		}
		if from != nil {
			old = from.kids[to[len(to)-1]]
		}
	}
	if old == nil || old.dir {
		return invalid("%q is a hard link to %q, which is not a file", h.Name, h.Linkname)
	}
	_, err = t.put(dir, base, old.inode, e.layer)
	return err
}

func inodeOf(e entry, h *tar.Header) *inode {
	f := &inode{
		mode: h.Mode & 0o7777, uid: ownerOf(h.Uid), gid: ownerOf(h.Gid), mtime: max(h.ModTime.Unix(), 0),
		layer: e.layer, at: e.at,
	}
	switch h.Typeflag {
	case tar.TypeDir:
		f.dir = true
	case tar.TypeSymlink:
		f.link, f.target, f.mode = true, strings.Clone(h.Linkname), 0o777 // see put
	default:
		f.size = h.Size
	}
	return f
}

// ownerOf maps ids outside of a sandbox's range to the user nobody.
func ownerOf(id int) int {
	if id < 0 || id > maxUID {
		return nobody
	}
	return id
}
