//go:build linux

package namespace

import (
	"context"
	"path/filepath"
	"strconv"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/layers"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/live"
	"github.com/millrace/millrace/services/hostd/internal/driver/namespace/nsinit"
)

// fromSnapshot mounts the layers of s.From under the sandbox's own.
func fromSnapshot(s *driver.Spec, spec *nsinit.Spec) error {
	if s.From == "" {
		return nil
	}
	m, err := layers.For(s.From, s.Root != "")
	if err != nil {
		return kind.Wrap(kind.Of(err), "create sandbox", string(s.ID), err)
	}
	spec.Below, spec.Layers = layers.Dir(s.From), uint32(m.Layers)
	return nil
}

// save makes a snapshot of a paused sandbox.
func save(ctx context.Context, dir string, state live.State, to string) error {
	layer, err := layers.Begin(ctx, state.From, to, state.Tree)
	if err != nil {
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
		if err := live.CopyTree(ctx, filepath.Join(written, upper), filepath.Join(layer.Dir, upper), live.Copy{Base: state.UIDBase}); err != nil {
			return layers.Error(err)
		}
	}
	return layer.Commit()
}
