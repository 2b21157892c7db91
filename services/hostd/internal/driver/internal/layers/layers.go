//go:build linux

// Package layers is the form in which drivers keep the files of a sandbox: any of
// them can make a sandbox of what any other kept, whatever program it did that with.
//
// # The form
// A snapshot is a directory with a manifest and with layers, oldest first: what the
// sandbox wrote, after what the snapshots that it was made from hold. A sandbox that
// is made from it has the layers mounted under its own and copies nothing. A layer is
// what the kernel's overlay wants of a lower directory that anybody may mount: what
// was removed is a device 0:0, and what was removed and made anew has the attribute
// user.overlay.opaque. It has the parts nsinit.Uppers: of the root, of /usr and of
// /etc; a sandbox with a template's tree has all in the first.
//
// # Owners
// They are those that the files have inside. An ordinary user cannot give them away:
// then all files are his, and a driver whose sandboxes have several users notes down
// what is not root's (Owners).
package layers

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/live"
	"github.com/millrace/millrace/services/hostd/internal/driver/namespace/nsinit"
)

const (
	manifestFile = "namespace.json" // the first driver that wrote it gave it its name
	dirName      = "layers"
	format       = 1

	// Max bounds how long a chain of snapshots of sandboxes that were made from
	// snapshots can get: an overlay's options must fit into a page.
	Max = 50
)

// Fits is driver.Caps.FileFits of a driver that can use this form.
func Fits() string { return driver.FilesFit("namespace") }

// Manifest says what a snapshot holds.
type Manifest struct {
	Format int  `json:"format"` // 1
	Layers int  `json:"layers"`
	Tree   bool `json:"tree"` // of a sandbox that was made from a template's tree
}

// Read reads the manifest of the snapshot in dir; of no snapshot it has no layers.
// Errors: NotFound where there is none, Invalid for one that is not as it should be.
func Read(dir string) (Manifest, error) {
	var m Manifest
	if dir == "" {
		return m, nil
	}
	b, err := os.ReadFile(filepath.Join(dir, manifestFile))
	if errors.Is(err, fs.ErrNotExist) {
		return m, kind.New(kind.NotFound, "read snapshot", "", "the directory holds no snapshot that this driver can use")
	}
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(b, &m); err != nil || m.Format != format || m.Layers < 1 || m.Layers > Max {
		return m, kind.Newf(kind.Invalid, "read snapshot", "", "%s is not one that a driver wrote: %q", manifestFile, b)
	}
	return m, nil
}

// For is Read for a sandbox that is to begin from the snapshot, with a template's tree
// or without. Invalid, too, for a snapshot that was made on the other.
func For(dir string, tree bool) (Manifest, error) {
	m, err := Read(dir)
	if err == nil && dir != "" && m.Tree != tree {
		err = kind.New(kind.Invalid, "read snapshot", "", "the snapshot was made on another template")
	}
	return m, err
}

func (m Manifest) save(dir string) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, manifestFile), b, 0o600)
}

// Dir is where a snapshot has its layers, each in a directory with its number.
func Dir(snapshot string) string { return filepath.Join(snapshot, dirName) }

// At is the directory of a layer.
func At(snapshot string, i int) string { return filepath.Join(Dir(snapshot), strconv.Itoa(i)) }

// Layer is one that is being made: what is in its directory counts from Commit on.
type Layer struct {
	Dir string

	to string
	m  Manifest
}

// Begin begins a snapshot in the directory to, of a sandbox that was made from the
// snapshot from, if it was, and with a template's tree or not. Errors: Exhausted for
// one layer too many and for a full disk.
func Begin(ctx context.Context, from, to string, tree bool) (*Layer, error) {
	m, err := Read(from)
	if err != nil {
		return nil, err
	}
	if m.Layers >= Max {
		return nil, kind.Newf(kind.Exhausted, "snapshot", "", "a chain of snapshots ends after %d", Max)
	}
	if err := share(ctx, from, to, m.Layers); err != nil {
		return nil, err
	}
	l := &Layer{Dir: At(to, m.Layers), to: to, m: Manifest{Format: format, Layers: m.Layers + 1, Tree: tree}}
	return l, os.Mkdir(l.Dir, 0o755)
}

// Commit ends a snapshot.
func (l *Layer) Commit() error { return l.m.save(l.to) }

// Share makes another snapshot of a snapshot, in the directory to. Nothing is copied
// where files can be linked.
func Share(ctx context.Context, from, to string) error {
	m, err := Read(from)
	if err != nil {
		return err
	}
	if err := share(ctx, from, to, m.Layers); err != nil {
		return err
	}
	return m.save(to)
}

// share makes the layers of a snapshot those of another: they change no more.
func share(ctx context.Context, from, to string, layers int) error {
	if err := os.Mkdir(Dir(to), 0o700); err != nil {
		return err
	}
	for i := range layers {
		if err := live.CopyTree(ctx, At(from, i), At(to, i), live.Copy{Link: true}); err != nil {
			return Error(err)
		}
	}
	return nil
}

// Error is what a snapshot says of an error in writing a layer.
func Error(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return kind.Wrap(kind.Exhausted, "snapshot", "", err)
	}
	return err
}

// Empty makes a snapshot without files in the directory to, which it makes, too.
func Empty(ctx context.Context, to string) error {
	if err := os.Mkdir(to, 0o700); err != nil {
		return err
	}
	l, err := Begin(ctx, "", to, false)
	if err != nil {
		return err
	}
	for _, part := range nsinit.Uppers() {
		if err := os.Mkdir(filepath.Join(l.Dir, part), 0o755); err != nil {
			return err
		}
	}
	return l.Commit()
}
