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

// Below is the layers of a snapshot as a sandbox has them under its own.
type Below struct {
	dir string
	m   Manifest
}

// Under is the layers of the snapshot in dir, of which For has been asked before; of
// no snapshot it is empty.
func Under(dir string, m Manifest) *Below { return &Below{dir, m} }

// Part gives the directories that are mounted over one another for a directory in the
// root, the uppermost first, and "" stands for the root itself. Of others than those
// in nsinit.Uppers it gives those that there are.
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

// split gives the part of a layer in which a path is, and where there.
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

// Found is what layers say of a path.
type Found struct {
	Path  string // of the file that is seen; empty: there is none
	Stat  unix.Stat_t
	Gone  bool // they hide what is below them
	Layer int
}

// Find says what a sandbox sees at a path in its root, without a slash before it.
// Links are not followed.
func (b *Below) Find(path string) (Found, error) {
	for i := b.m.Layers - 1; i >= 0; i-- {
		f, err := b.FindIn(i, path)
		if err != nil || f.Path != "" || f.Gone {
			return f, err
		}
	}
	return Found{}, nil
}

// FindIn is Find of one layer alone.
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

// ownersFile notes down, beside the parts of a layer, whose its files are.
const ownersFile = "owners"

// Owner is whose a file is, which is there if he is not root.
type Owner struct {
	UID, GID uint32
	Path     string
}

// Owners writes down the owners of a layer that is being made.
type Owners struct {
	f *os.File
	w *bufio.Writer
}

// Owners begins a list of the layer's owners. Close it.
func (l *Layer) Owners() (*Owners, error) {
	f, err := os.OpenFile(filepath.Join(l.Dir, ownersFile), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	return &Owners{f, bufio.NewWriter(f)}, nil
}

// Add notes down an owner. Its errors are told by Close.
func (o *Owners) Add(w Owner) {
	fmt.Fprintf(o.w, "%d %d /%s\x00", w.UID, w.GID, w.Path) //nolint:errcheck // see above
}

// Close ends the list.
func (o *Owners) Close() error { return errors.Join(o.w.Flush(), o.f.Close()) }

// most is how long a line in ownersFile may be.
const most = 1 << 20

// Owners are all that a layer has noted down and of which a sandbox sees the file, but
// for what is in directories that are shut to us: it stays root's. ok is false where
// nothing was noted down: its files are all one user's, or have their owners.
func (b *Below) Owners(i int) (all []Owner, ok bool, err error) {
	f, err := os.Open(filepath.Join(At(b.dir, i), ownersFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, most)
	lines.Split(untilZero)
	for lines.Scan() {
		var o Owner
		head, path, ok := strings.Cut(lines.Text(), "/")
		if _, err := fmt.Sscanf(head, "%d %d", &o.UID, &o.GID); err != nil || !ok {
			return nil, false, kind.Newf(kind.Invalid, "read snapshot", "", "%s is not one that a driver wrote", f.Name())
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

// untilZero is a bufio.SplitFunc.
func untilZero(data []byte, end bool) (int, []byte, error) {
	if n := bytes.IndexByte(data, 0); n >= 0 {
		return n + 1, data[:n], nil
	}
	if end && len(data) > 0 {
		return 0, nil, io.ErrUnexpectedEOF
	}
	return 0, nil, nil
}

// Layers is how many there are.
func (b *Below) Layers() int { return b.m.Layers }
