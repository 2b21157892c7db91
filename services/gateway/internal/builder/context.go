package builder

import (
	"archive/tar"
	"bufio"
	"errors"
	"io"
	"path"
	"strings"

	"github.com/klauspost/compress/gzip"

	"github.com/millrace/millrace/events/kind"
)

// Limits on the unpacked files of a copy.
const (
	maxEntries  = 1 << 20
	maxUnpacked = 16 << 30 // bytes
)

// openTar opens a tar that may be compressed by gzip.
func openTar(r io.Reader) (*tar.Reader, error) {
	b := bufio.NewReader(r)
	head, err := b.Peek(2)
	if err != nil || head[0] != 0x1f || head[1] != 0x8b {
		return tar.NewReader(&limitReader{r: b, left: maxUnpacked}), nil //nolint:nilerr // the tar reader rejects input that is too short
	}
	z, err := gzip.NewReader(b)
	if err != nil {
		return nil, tarError(err)
	}
	return tar.NewReader(&limitReader{r: z, left: maxUnpacked}), nil
}

// limitReader limits the unpacked bytes, regardless of the sizes in the packed data.
type limitReader struct {
	r    io.Reader
	left int64
}

func (c *limitReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	if c.left -= int64(n); c.left < 0 {
		return 0, invalid("the files unpack to more than %d bytes", int64(maxUnpacked))
	}
	return n, err
}

// CheckContext reads an upload of a client's to its end, and returns Invalid if it is not
// an acceptable tar.
func CheckContext(r io.Reader) error {
	t, err := openTar(r)
	for n := 0; err == nil; n++ {
		var h *tar.Header
		if h, err = t.Next(); err == nil {
			_, err = cleanName(h, n)
		}
	}
	if !errors.Is(err, io.EOF) {
		return tarError(err)
	}
	_, err = io.Copy(io.Discard, r)
	return err
}

// cleanName checks an entry and returns its path, relative to the source directory of the copy.
func cleanName(h *tar.Header, n int) (string, error) {
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeDir, tar.TypeSymlink, tar.TypeLink, tar.TypeGNUSparse, tar.TypeXGlobalHeader:
	default:
		return "", invalid("%.80q is neither a file, a directory nor a link", h.Name)
	}
	if n > maxEntries {
		return "", invalid("more than %d files", maxEntries)
	}
	if h.Size < 0 || h.Size > maxUnpacked {
		return "", invalid("%.80q has %d bytes", h.Name, h.Size)
	}
	names := []string{h.Name}
	if h.Typeflag == tar.TypeLink {
		names = append(names, h.Linkname)
	}
	for _, name := range names {
		if strings.HasPrefix(name, "/") || strings.IndexByte(name, 0) >= 0 || leavesRoot(name) {
			return "", invalid("%.80q leads out of the copied directory", name)
		}
	}
	return path.Clean(h.Name), nil
}

func leavesRoot(name string) bool {
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return true
		}
	}
	return false
}

func invalid(format string, args ...any) error {
	return kind.Newf(kind.Invalid, "read files", "", format, args...)
}

// tarError returns an error of a tar reader as Invalid, unless it has a kind.
func tarError(err error) error {
	var k *kind.Error
	if errors.As(err, &k) {
		return err
	}
	return &kind.Error{Op: "read files", Kind: kind.Invalid, Msg: "the files are not a valid tar:  " + err.Error(), Err: err}
}

// copySpec describes the destination of a COPY's files.
type copySpec struct {
	source string // clean and relative; may be a pattern
	dest   string
	mode   int64  // of all files; 0: unchanged
	single string // name of the destination file if the source is one file; empty: the source is a directory or a pattern
}

// target returns the destination of an entry, relative to dest; false if the entry is not
// part of the source.
func (c *copySpec) target(name string, dir bool) (string, bool) {
	rest, ok := below(name, c.source)
	if c.source != "." && strings.ContainsAny(c.source, `*?[{`) {
		rest, ok = c.matched(name, dir)
	}
	switch {
	case !ok:
		return "", false
	case c.single != "":
		return c.single, rest == "."
	}
	return rest, true
}

// below returns the rest of name after dir.
func below(name, dir string) (string, bool) {
	switch {
	case dir == ".":
		return name, true
	case name == dir:
		return ".", true
	}
	return strings.CutPrefix(name, dir+"/")
}

// matched returns the destination of an entry that matches the source pattern: its base name
// for a file, and the path below the matching directory for anything in one.
func (c *copySpec) matched(name string, dir bool) (string, bool) {
	parts, depth := strings.Split(name, "/"), strings.Count(c.source, "/")+1
	if len(parts) >= depth {
		head := path.Join(parts[:depth]...)
		if ok, err := path.Match(c.source, head); ok && err == nil {
			if head == name && !dir {
				return parts[depth-1], true
			}
			return below(name, head)
		}
	}
	// A client's pattern that path.Match does not support: use its constant prefix.
	fixed, _, _ := strings.Cut(c.source, "*")
	fixed, _, _ = strings.Cut(fixed, "{")
	return below(name, path.Dir(fixed+"x"))
}

// rewrite writes a tar with the files of a COPY under their destination names: the entries of
// from, of which first was read already.
func (c *copySpec) rewrite(to io.Writer, first *tar.Header, from *tar.Reader) error {
	out := tar.NewWriter(to)
	for n, h := 0, first; ; n++ {
		if err := c.entry(out, h, from, n); err != nil {
			return err
		}
		next, err := from.Next()
		if errors.Is(err, io.EOF) {
			return out.Close()
		}
		if err != nil {
			return tarError(err)
		}
		h = next
	}
}

func (c *copySpec) entry(out *tar.Writer, h *tar.Header, body io.Reader, n int) error {
	name, err := cleanName(h, n)
	if err != nil {
		return err
	}
	to, ok := c.target(name, h.Typeflag == tar.TypeDir)
	if !ok || h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	e := tar.Header{Typeflag: h.Typeflag, Name: to, Linkname: h.Linkname, Mode: h.Mode & 0o777, Size: h.Size}
	if c.mode != 0 {
		e.Mode = c.mode
	}
	if h.Typeflag == tar.TypeLink {
		if e.Linkname, ok = c.target(path.Clean(h.Linkname), false); !ok {
			return invalid("%.80q is a hard link to a file that is not copied", h.Name)
		}
	}
	if h.Typeflag == tar.TypeGNUSparse {
		e.Typeflag = tar.TypeReg
	}
	if err := out.WriteHeader(&e); err != nil {
		return err
	}
	_, err = io.Copy(out, body)
	return err
}
