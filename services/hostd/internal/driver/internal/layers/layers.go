//go:build linux

// Package layers defines the format in which drivers save the files of a sandbox: any
// driver can make a sandbox from a snapshot of any other.
//
// # Format
// A snapshot is a directory with a manifest and with layers, oldest first: what the
// sandbox wrote is added to the layers of the snapshots that it was made from. A sandbox
// made from it has the layers mounted under its own and copies nothing. A layer has the
// form of a lower directory of an overlay that any user may mount: a removed file is a
// device 0:0, and a directory that was removed and recreated has the attribute
// user.overlay.opaque. It has the parts nsinit.Uppers: of the root, of /usr and of
// /etc; a sandbox with a template's tree has everything in the first.
//
// # Owners
// Files have the owners that they have inside. An ordinary user cannot set owners: then
// it owns all files, and a driver whose sandboxes have several users records
// which files do not belong to root (Owners).
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
	manifestFile = "namespace.json" // named after the first driver that wrote it
	dirName      = "layers"
	format       = 1

	// Max is the maximum length of a chain of snapshots made from
	// snapshots: an overlay's options must fit into a page.
	Max = 50
)

// Fits returns driver.Caps.FileFits of a driver that uses this format.
func Fits() string { return driver.FilesFit("namespace") }

// Manifest describes the contents of a snapshot.
type Manifest struct {
	Format int  `json:"format"` // 1
	Layers int  `json:"layers"`
	Tree   bool `json:"tree"` // whether the sandbox was made from a template's tree
}

// Read reads the manifest of the snapshot in dir; without a snapshot it has no layers.
// It returns NotFound if it is missing, Invalid for a malformed one.
func Read(dir string) (Manifest, error) {
	var m Manifest
	if dir == "" {
		return m, nil
	}
	b, err := os.ReadFile(filepath.Join(dir, manifestFile))
	if errors.Is(err, fs.ErrNotExist) {
		return m, kind.New(kind.NotFound, "read snapshot", "", "no snapshot that this driver can use")
	}
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(b, &m); err != nil || m.Format != format || m.Layers < 1 || m.Layers > Max {
		return m, kind.Newf(kind.Invalid, "read snapshot", "", "%s was not written by a driver: %q", manifestFile, b)
	}
	return m, nil
}

// For is Read for a sandbox to be made from the snapshot, with a template's tree
// or without. It returns Invalid also if the snapshot differs in that.
func For(dir string, tree bool) (Manifest, error) {
	m, err := Read(dir)
	if err == nil && dir != "" && m.Tree != tree {
		err = kind.New(kind.Invalid, "read snapshot", "", "the snapshot was made from another template")
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

// Dir returns the directory of a snapshot's layers, each in a directory with its number.
func Dir(snapshot string) string { return filepath.Join(snapshot, dirName) }

// At returns the directory of a layer.
func At(snapshot string, i int) string { return filepath.Join(Dir(snapshot), strconv.Itoa(i)) }

// Layer is a layer that is being made: the contents of its directory are valid from Commit on.
type Layer struct {
	Dir string

	to string
	m  Manifest
}

// Begin begins a snapshot in the directory to, of a sandbox that was made from the
// snapshot from, if any, and with a template's tree or not. It returns Exhausted for
// one layer too many and for a full disk.
func Begin(ctx context.Context, from, to string, tree bool) (*Layer, error) {
	m, err := Read(from)
	if err != nil {
		return nil, err
	}
	if m.Layers >= Max {
		return nil, kind.Newf(kind.Exhausted, "snapshot", "", "the chain of snapshots exceeds the limit of %d", Max)
	}
	if err := share(ctx, from, to, m.Layers); err != nil {
		return nil, err
	}
	l := &Layer{Dir: At(to, m.Layers), to: to, m: Manifest{Format: format, Layers: m.Layers + 1, Tree: tree}}
	return l, os.Mkdir(l.Dir, 0o755)
}

// Commit completes a snapshot.
func (l *Layer) Commit() error { return l.m.save(l.to) }

// Share makes another snapshot from a snapshot, in the directory to. Nothing is copied
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

// share gives the layers of a snapshot to another one: they do not change any more.
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

// Error returns a snapshot's error for an error in writing a layer.
func Error(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return kind.Wrap(kind.Exhausted, "snapshot", "", err)
	}
	return err
}

// Empty creates the directory to with a snapshot without files.
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
