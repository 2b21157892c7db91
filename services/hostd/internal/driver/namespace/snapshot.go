//go:build linux

package namespace

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

// A snapshot is a directory with a manifest and with layers, oldest first: what
// the sandbox wrote, after what the snapshots that it was made from hold. A
// sandbox that is made from it mounts the layers under its own and copies
// nothing. Owners are those that the files have inside.
const (
	manifestFile = "namespace.json"
	layersDir    = "layers"

	// maxLayers bounds how long a chain of snapshots of sandboxes that were made
	// from snapshots can get: an overlay's options must fit into a page.
	maxLayers = 50
)

type manifest struct {
	Format int  `json:"format"` // 1
	Layers int  `json:"layers"`
	Tree   bool `json:"tree"` // of a sandbox that was made from a template's tree
}

const format = 1

// readManifest reads that of the snapshot in dir; of no snapshot it has no layers.
func readManifest(dir string) (manifest, error) {
	var m manifest
	if dir == "" {
		return m, nil
	}
	b, err := os.ReadFile(filepath.Join(dir, manifestFile))
	if errors.Is(err, fs.ErrNotExist) {
		return m, kind.New(kind.NotFound, "read snapshot", "", "the directory holds no snapshot of this driver")
	}
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(b, &m); err != nil || m.Format != format || m.Layers < 1 || m.Layers > maxLayers {
		return m, kind.Newf(kind.Invalid, "read snapshot", "", "%s is not one that this driver wrote: %q", manifestFile, b)
	}
	return m, nil
}

// fromSnapshot puts the layers of s.From under the place.
func fromSnapshot(s *driver.Spec, spec *nsinit.Spec) error {
	if s.From == "" {
		return nil
	}
	m, err := readManifest(s.From)
	if err != nil {
		return kind.Wrap(kind.Of(err), "create sandbox", string(s.ID), err)
	}
	if m.Tree != (s.Root != "") {
		return kind.New(kind.Invalid, "create sandbox", string(s.ID), "the snapshot was made on another template")
	}
	spec.Below, spec.Layers = filepath.Join(s.From, layersDir), uint32(m.Layers)
	return nil
}

// save makes a snapshot of a sandbox that stands still.
func save(ctx context.Context, dir string, state live.State, to string) error {
	m, err := readManifest(state.From)
	if err != nil {
		return err
	}
	if m.Layers >= maxLayers {
		return kind.Newf(kind.Exhausted, "snapshot", string(state.ID), "a chain of snapshots ends after %d", maxLayers)
	}
	if err := os.Mkdir(filepath.Join(to, layersDir), 0o700); err != nil {
		return err
	}
	// What is older changes no more: it can be shared.
	for i := range m.Layers {
		layer := filepath.Join(layersDir, strconv.Itoa(i))
		if err := live.CopyTree(ctx, filepath.Join(state.From, layer), filepath.Join(to, layer), live.Copy{Link: true}); err != nil {
			return saveError(err)
		}
	}
	layer := filepath.Join(to, layersDir, strconv.Itoa(m.Layers))
	if err := os.Mkdir(layer, 0o755); err != nil {
		return err
	}
	written := filepath.Join(dir, workDir)
	if state.Disk != "" {
		mount, err := openDisk(dir, state.Disk)
		if err != nil {
			return err
		}
		defer mount.Close()
		written = filepath.Join("/proc/self/fd", strconv.Itoa(int(mount.Fd())))
	}
	for _, upper := range nsinit.Uppers() {
		if err := live.CopyTree(ctx, filepath.Join(written, upper), filepath.Join(layer, upper), live.Copy{Base: state.UIDBase}); err != nil {
			return saveError(err)
		}
	}
	m = manifest{Format: format, Layers: m.Layers + 1, Tree: state.Tree}
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(to, manifestFile), b, 0o600)
}

func saveError(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return kind.Wrap(kind.Exhausted, "snapshot", "", err)
	}
	return err
}

// emptySnapshot makes one without files, for Probe.
func emptySnapshot(dir string) error {
	for _, upper := range nsinit.Uppers() {
		if err := os.MkdirAll(filepath.Join(dir, layersDir, "0", upper), 0o755); err != nil {
			return err
		}
	}
	b, err := json.Marshal(manifest{Format: format, Layers: 1})
	if err != nil {
		return fmt.Errorf("write %s: %w", manifestFile, err)
	}
	return os.WriteFile(filepath.Join(dir, manifestFile), b, 0o600)
}
