//go:build linux

package layers

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/hostd/internal/driver/namespace/nsinit"
)

// Opaque is the attribute, with the value "y", of a directory that hides what older
// layers have there.
const Opaque = "user.overlay.opaque"

// Below is the layers of a snapshot as they are mounted under a sandbox's own.
type Below struct {
	dir string
	m   Manifest
}

// Under returns the layers of the snapshot in dir, whose manifest For has read; it is empty
// without a snapshot.
func Under(dir string, m Manifest) *Below { return &Below{dir, m} }

// Part returns the directories that are mounted over one another for a directory in the
// root, the uppermost first; "" stands for the root itself. Of directories other than
// nsinit.Uppers it returns those that exist.
func (b *Below) Part(name string) []string {
	var all []string
	for i := b.m.Layers - 1; i >= 0; i-- {
		part, rest := b.split(name)
		dir := filepath.Join(At(b.dir, i), part, rest)
		if fi, err := os.Lstat(dir); rest == "" || err == nil && fi.IsDir() {
			all = append(all, dir)
		}
	}
	return all
}

// split returns the part of a layer that contains a path, and the path in it.
func (b *Below) split(path string) (part, rest string) {
	uppers := nsinit.Uppers()
	first, rest, _ := strings.Cut(path, "/")
	if !b.m.Tree {
		for _, part := range uppers[1:] {
			if first == strings.TrimSuffix(part, ".upper") {
				return part, rest
			}
		}
	}
	return uppers[0], path
}

// Found is what layers have at a path.
type Found struct {
	Path  string // of the visible file; empty: none
	Stat  unix.Stat_t
	Gone  bool // the layers hide the files below them
	Layer int
}

// Find returns the file that is visible at a path in a sandbox's root, without a leading slash.
// It does not follow links.
func (b *Below) Find(path string) (Found, error) {
	for i := b.m.Layers - 1; i >= 0; i-- {
		f, err := b.FindIn(i, path)
		if err != nil || f.Path != "" || f.Gone {
			return f, err
		}
	}
	return Found{}, nil
}

// FindIn is Find in one layer only.
func (b *Below) FindIn(i int, path string) (Found, error) {
	part, rest := b.split(path)
	f, at := Found{Layer: i}, filepath.Join(At(b.dir, i), part)
	names := strings.Split(rest, "/")
	if rest == "" {
		names = []string{"."}
	}
	for n, name := range names {
		at = filepath.Join(at, name)
		err := unix.Lstat(at, &f.Stat)
		if errors.Is(err, fs.ErrNotExist) {
			return f, nil
		}
		kind := f.Stat.Mode & unix.S_IFMT
		switch {
		case err != nil:
			return f, &os.PathError{Op: "stat", Path: at, Err: err}
		case kind == unix.S_IFCHR, kind != unix.S_IFDIR && n < len(names)-1:
			f.Gone = true
			return f, nil
		case n == len(names)-1:
			f.Path = at
			return f, nil
		}
		var value [2]byte
		if n, err := unix.Lgetxattr(at, Opaque, value[:]); err == nil && n == 1 && value[0] == 'y' {
			f.Gone = true
		}
	}
	return f, nil
}

// ownersFile lists the owners of a layer's files, beside its parts.
const ownersFile = "owners"

// Owner is the owner of a file that does not belong to root.
type Owner struct {
	UID, GID uint32
	Path     string
}

// Owners writes the list of owners of a layer that is being made.
type Owners struct {
	f *os.File
	w *bufio.Writer
}

// Owners creates the list of the layer's owners. The caller closes it.
func (l *Layer) Owners() (*Owners, error) {
	f, err := os.OpenFile(filepath.Join(l.Dir, ownersFile), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	return &Owners{f, bufio.NewWriter(f)}, nil
}

// Add adds an owner. Close returns its errors.
func (o *Owners) Add(w Owner) {
	fmt.Fprintf(o.w, "%d %d /%s\x00", w.UID, w.GID, w.Path)
}

// Close completes the list.
func (o *Owners) Close() error { return errors.Join(o.w.Flush(), o.f.Close()) }

// most is the maximum length of a line in ownersFile.
const most = 1 << 20

// Owners returns the recorded owners of a layer's files that are visible in a sandbox,
// except in directories that hostd may not enter: those files stay root's. ok is false
// if none were recorded: all files belong to one user, or have their owners.
func (b *Below) Owners(i int) (all []Owner, ok bool, err error) {
	f, err := os.Open(filepath.Join(At(b.dir, i), ownersFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, most)
	lines.Split(untilZero)
	for lines.Scan() {
		var o Owner
		head, path, ok := strings.Cut(lines.Text(), "/")
		if _, err := fmt.Sscanf(head, "%d %d", &o.UID, &o.GID); err != nil || !ok {
			return nil, false, kind.Newf(kind.Invalid, "read snapshot", "", "%s was not written by a driver", f.Name())
		}
		o.Path = path
		seen, err := b.Find(path)
		if errors.Is(err, fs.ErrPermission) {
			continue
		}
		if err != nil {
			return nil, false, err
		}
		if seen.Path != "" && seen.Layer == i {
			all = append(all, o)
		}
	}
	return all, true, lines.Err()
}

// untilZero is a bufio.SplitFunc for NUL-terminated strings.
func untilZero(data []byte, end bool) (int, []byte, error) {
	if n := bytes.IndexByte(data, 0); n >= 0 {
		return n + 1, data[:n], nil
	}
	if end && len(data) > 0 {
		return 0, nil, io.ErrUnexpectedEOF
	}
	return 0, nil, nil
}

// Layers returns the number of layers.
func (b *Below) Layers() int { return b.m.Layers }
