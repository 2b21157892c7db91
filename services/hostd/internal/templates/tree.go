package templates

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/template"
)

// fillTree fills the directory root from a template's tar. As root the files get
// their owners; otherwise they are hostd's, and nothing is set-uid. A copy of a host's
// files is exact: it is only used on hosts that can represent them.
func fillTree(root string, r *tar.Reader, m *template.Manifest) error {
	if err := os.Mkdir(root, 0o700); err != nil {
		return err
	}
	dir, err := os.OpenRoot(root) // its methods do not lead out of it
	if err != nil {
		return err
	}
	defer dir.Close()
	f := filler{root: dir, owners: os.Geteuid() == 0, exact: m.Exact, files: m.Files, size: m.Size, memory: maxMemory}
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if errors.Is(err, tar.ErrHeader) || errors.Is(err, tar.ErrInsecurePath) || errors.Is(err, io.ErrUnexpectedEOF) {
			return damaged("%s", err)
		}
		if err != nil {
			return err
		}
		if err := f.add(h, r); err != nil {
			return err
		}
	}
	if f.files != 0 || f.size != 0 {
		return damaged("it has %d files and %d bytes less than its manifest declares", f.files, f.size)
	}
	if err := f.finish(); err != nil || f.exact {
		return err
	}
	return os.Chmod(root, 0o755)
}

func damaged(format string, args ...any) error {
	return kind.Newf(kind.Invalid, "unpack template", "", "the template is damaged: "+format, args...)
}

// filler fills a tree.
type filler struct {
	root   *os.Root
	owners bool
	exact  bool
	files  int64 // files left
	size   int64 // bytes left
	dirs   []*tar.Header
	memory int // memory left for them, in bytes
}

func (f *filler) add(h *tar.Header, body io.Reader) error {
	name := strings.TrimSuffix(h.Name, "/")
	if name == "" || path.Clean(name) != name || !filepath.IsLocal(name) || name == "." && !f.exact {
		return damaged("path %q", h.Name)
	}
	if strings.Count(name, "/") > maxDepth {
		return damaged("directories nested deeper than %d levels", maxDepth)
	}
	if f.files--; f.files < 0 {
		return damaged("more files than its manifest declares")
	}
	switch h.Typeflag {
	case tar.TypeDir:
		if f.memory -= sizeOf(h); f.memory < 0 {
			return damaged("too many directories, or too long paths")
		}
		f.dirs = append(f.dirs, dirHeader(h))
		if name == "." {
			return nil
		}
		return f.root.Mkdir(name, 0o700) // its mode is set last: it may forbid access
	case tar.TypeReg:
		return f.file(name, h, body)
	case tar.TypeSymlink:
		if err := f.root.Symlink(h.Linkname, name); err != nil {
			return err
		}
		return f.own(name, h)
	case tar.TypeLink:
		return f.root.Link(h.Linkname, name)
	case tar.TypeFifo, tar.TypeChar:
		if f.exact {
			return f.node(name, h)
		}
	}
	return damaged("%q is of type %q", h.Name, h.Typeflag)
}

// dirHeader returns what finish needs of a directory's header, whose strings share memory with
// its whole record.
func dirHeader(h *tar.Header) *tar.Header {
	p := &tar.Header{Name: strings.Clone(h.Name), Mode: h.Mode, Uid: h.Uid, Gid: h.Gid, ModTime: h.ModTime, PAXRecords: map[string]string{}}
	for key, value := range h.PAXRecords {
		if strings.HasPrefix(key, xattrRecord) {
			p.PAXRecords[strings.Clone(key)] = strings.Clone(value)
		}
	}
	return p
}

func (f *filler) file(name string, h *tar.Header, body io.Reader) error {
	if f.size -= h.Size; f.size < 0 {
		return damaged("more bytes than its manifest declares")
	}
	out, err := f.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if f.exact {
		if err = sparse(out, body, h.Size); err == nil {
			err = setAttributes(out, h)
		}
	} else {
		_, err = io.Copy(out, body)
	}
	if err == nil && f.owners {
		err = out.Chown(h.Uid, h.Gid)
	}
	if err == nil { // after chown, which clears set-uid
		err = out.Chmod(f.mode(h))
	}
	if err = errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return f.root.Chtimes(name, h.ModTime, h.ModTime)
}

// node makes a pipe, a socket, or an overlay's whiteout.
func (f *filler) node(name string, h *tar.Header) error {
	at, err := f.root.Open(path.Dir(name))
	if err != nil {
		return err
	}
	defer at.Close()
	if err := makeNode(at, path.Base(name), h); err != nil {
		return err
	}
	err = f.own(name, h)
	if err == nil {
		err = f.root.Chmod(name, f.mode(h))
	}
	if err == nil {
		err = f.root.Chtimes(name, h.ModTime, h.ModTime)
	}
	return err
}

// sparse writes a file of that size, with holes for the zeros in it.
func sparse(out *os.File, body io.Reader, size int64) error {
	buf := make([]byte, 64<<10)
	for at := int64(0); at < size; {
		n, err := io.ReadFull(body, buf[:min(int64(len(buf)), size-at)])
		if err != nil {
			return err
		}
		if !zero(buf[:n]) {
			if _, err := out.WriteAt(buf[:n], at); err != nil {
				return err
			}
		}
		at += int64(n)
	}
	return out.Truncate(size)
}

func zero(b []byte) bool {
	return len(b) == 0 || b[0] == 0 && bytes.Equal(b[1:], b[:len(b)-1])
}

// mode returns an entry's mode, without set-uid and set-gid unless hostd is root.
func (f *filler) mode(h *tar.Header) fs.FileMode {
	mode := h.FileInfo().Mode() & (fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky)
	if !f.owners && !f.exact {
		mode = mode&^(fs.ModeSetuid|fs.ModeSetgid) | 0o400 // hostd must be able to read it
	}
	return mode
}

func (f *filler) own(name string, h *tar.Header) error {
	if !f.owners {
		return nil
	}
	return f.root.Lchown(name, h.Uid, h.Gid)
}

// finish sets the final attributes of directories, the innermost first.
func (f *filler) finish() error {
	for i := len(f.dirs) - 1; i >= 0; i-- {
		h := f.dirs[i]
		name := strings.TrimSuffix(h.Name, "/")
		mode := f.mode(h)
		if !f.owners && !f.exact {
			mode |= 0o700 // otherwise hostd could not remove it
		}
		err := f.own(name, h)
		if err == nil && f.exact {
			err = f.attributes(name, h)
		}
		if err == nil {
			err = f.root.Chmod(name, mode)
		}
		if err == nil {
			err = f.root.Chtimes(name, h.ModTime, h.ModTime)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (f *filler) attributes(name string, h *tar.Header) error {
	d, err := f.root.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(setAttributes(d, h), d.Close())
}

// setAttributes sets the user's attributes of its entry on an open file.
func setAttributes(out *os.File, h *tar.Header) error {
	for key, value := range h.PAXRecords {
		name, ok := strings.CutPrefix(key, xattrRecord)
		if !ok || !strings.HasPrefix(name, userAttribute) {
			continue
		}
		if err := setAttribute(out, name, value); err != nil {
			return err
		}
	}
	return nil
}
