package deictic

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// Limits of the tools for files.
const (
	maxRead    = 64 << 10 // bytes of a file that the model gets
	maxEntries = 500      // of a directory
	maxHits    = 100      // of a search
	maxScanned = 64 << 20 // bytes that a search reads
	maxLine    = 300      // bytes of a line that a search shows
)

// files are the directories in which the tools for files work.
type files struct {
	dir   string   // working directory
	roots []string // directories below which paths are allowed
}

var errOutside = errors.New("the path is outside of the directories that this tool may use")

// open returns the root that a path is below, and its name there. A link cannot lead out of the root.
func (f *files) open(path string) (*os.Root, string, error) {
	if path == "" || strings.ContainsRune(path, 0) {
		return nil, "", errors.New("path is required")
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(f.dir, path)
	}
	path = filepath.Clean(path)
	for _, dir := range f.roots {
		rel, err := filepath.Rel(dir, path)
		if err != nil || !filepath.IsLocal(rel) {
			continue
		}
		root, err := os.OpenRoot(dir)
		return root, rel, err
	}
	return nil, "", fmt.Errorf("%w: %s", errOutside, strings.Join(f.roots, ", "))
}

// openFile opens a regular file. A device or a pipe could block the agent.
func openFile(root *os.Root, name string) (*os.File, int64, error) {
	info, err := root.Stat(name)
	if err != nil {
		return nil, 0, err
	}
	if !info.Mode().IsRegular() {
		return nil, 0, fmt.Errorf("%s is not a regular file", name)
	}
	f, err := root.OpenFile(name, os.O_RDONLY|nonblock, 0)
	return f, info.Size(), err
}

func (f *files) read(path string) (string, error) {
	root, name, err := f.open(path)
	if err != nil {
		return "", err
	}
	defer root.Close()
	file, size, err := openFile(root, name)
	if err != nil {
		return "", err
	}
	defer file.Close()
	b, err := io.ReadAll(io.LimitReader(file, maxRead+1))
	if err != nil {
		return "", err
	}
	if bytes.IndexByte(b, 0) >= 0 {
		return fmt.Sprintf("[a binary file of %d bytes]", size), nil
	}
	if len(b) > maxRead {
		return text(b[:maxRead]) + fmt.Sprintf("\n[the file has %d bytes; this is its beginning]", size), nil
	}
	return text(b), nil
}

// text returns bytes as valid UTF-8.
func text(b []byte) string { return strings.ToValidUTF8(string(b), "\ufffd") }

func (f *files) write(path, content string) (string, error) {
	root, name, err := f.open(path)
	if err != nil {
		return "", err
	}
	defer root.Close()
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return "", err
	}
	if info, err := root.Stat(name); err == nil && !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is not a regular file", path)
	}
	file, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|nonblock, 0o644)
	if err != nil {
		return "", err
	}
	_, err = io.WriteString(file, content)
	if err = errors.Join(err, file.Close()); err != nil {
		return "", err
	}
	return fmt.Sprintf("wrote %d bytes to %s", len(content), path), nil
}

func (f *files) list(path string) (string, error) {
	if path == "" {
		path = "."
	}
	root, name, err := f.open(path)
	if err != nil {
		return "", err
	}
	defer root.Close()
	dir, err := root.OpenFile(name, os.O_RDONLY|nonblock, 0)
	if err != nil {
		return "", err
	}
	defer dir.Close()
	entries, err := dir.ReadDir(maxEntries + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	var out strings.Builder
	for i, e := range entries {
		if i == maxEntries {
			fmt.Fprintf(&out, "[more than %d entries]\n", maxEntries)
			break
		}
		if e.IsDir() {
			fmt.Fprintf(&out, "%s/\n", e.Name())
			continue
		}
		fmt.Fprint(&out, e.Name())
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			fmt.Fprintf(&out, " %d", info.Size())
		}
		fmt.Fprintln(&out)
	}
	if out.Len() == 0 {
		return "[the directory is empty]", nil
	}
	return out.String(), nil
}

var errEnough = errors.New("enough")

func (f *files) search(ctx context.Context, path, want string) (string, error) {
	if want == "" {
		return "", errors.New("text is required")
	}
	root, name, err := f.open(path)
	if err != nil {
		return "", err
	}
	defer root.Close()
	var out strings.Builder
	hits, left := 0, int64(maxScanned)
	err = fs.WalkDir(root.FS(), filepath.ToSlash(name), func(at string, d fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil || !d.Type().IsRegular() {
			return nil
		}
		info, err := d.Info()
		if err != nil || info.Size() > maxScanned/8 {
			return nil
		}
		if left -= info.Size(); left < 0 {
			return errEnough
		}
		b, err := root.ReadFile(at)
		if err != nil || bytes.IndexByte(b[:min(len(b), 1024)], 0) >= 0 {
			return nil
		}
		number := 0
		for line := range bytes.Lines(b) {
			number++
			if !bytes.Contains(line, []byte(want)) {
				continue
			}
			if hits++; hits > maxHits {
				return errEnough
			}
			fmt.Fprintf(&out, "%s:%d:%s\n", filepath.Join(root.Name(), at), number, text(bytes.TrimRight(line[:min(len(line), maxLine)], "\r\n")))
		}
		return nil
	})
	switch {
	case errors.Is(err, errEnough):
		out.WriteString("[there is more]\n")
	case err != nil:
		return "", err
	case out.Len() == 0:
		return "[nothing was found]", nil
	}
	return out.String(), nil
}

// shorten cuts the middle out of a text that is longer than limit bytes.
func shorten(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	head, tail := limit/2, len(s)-limit/2
	for head > 0 && !utf8.RuneStart(s[head]) {
		head--
	}
	for tail < len(s) && !utf8.RuneStart(s[tail]) {
		tail++
	}
	return fmt.Sprintf("%s\n[%d bytes were left out]\n%s", s[:head], tail-head, s[tail:])
}
