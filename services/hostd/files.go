package hostd

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/millrace/millrace/events/template"
	"github.com/millrace/millrace/services/hostd/internal/helperbin"
	"github.com/millrace/millrace/services/hostd/internal/prefetch"
	"github.com/millrace/millrace/services/hostd/internal/snapshots"
	"github.com/millrace/millrace/services/hostd/internal/templates"
	"github.com/millrace/millrace/services/hostd/internal/volumes"
)

const (
	templatesDir = "templates"
	snapshotDir  = "snapshots"
	volumeDir    = "volumes"
)

func openTemplates(cfg *Config) (*templates.Cache, error) {
	return templates.Open(templates.Config{
		Dir: filepath.Join(cfg.DataDir, templatesDir), Source: cfg.Log, Copies: cfg.Log.CopyStore(), Max: cfg.TemplateCache, Log: cfg.Slog,
		Sudo: func(ctx context.Context) (string, error) { return sudoProgram(ctx, cfg.Slog) },
	})
}

// sudoProgram returns the path of the small shim, which is also sudo and static, or of this
// program where the small one cannot be built.
func sudoProgram(ctx context.Context, log *slog.Logger) (string, error) {
	if path, err := helperbin.Shim().FindSame(); err == nil {
		return path, nil
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if path, err := helperbin.Shim().BuildSame(ctx, log.Info); err == nil {
		return path, nil
	}
	return os.Executable()
}

// templateNames returns the templates from which a sandbox can be created without a fetch.
func (h *host) templateNames() []string {
	out := []string{template.Host, template.Base}
	for _, id := range h.cache.Have() {
		out = append(out, string(id))
	}
	return out
}

// newTemplates returns the fetcher of the host's templates. The view must be open.
func (h *host) newTemplates() *prefetch.Fetcher {
	return prefetch.New(prefetch.Config{DataDir: h.cfg.DataDir, View: h.view, Cache: h.cache, Snapshots: h.snapshots, Slog: h.slog})
}

// snapshotsDir returns the directory of all snapshots.
func (h *host) snapshotsDir() string { return filepath.Join(h.cfg.DataDir, snapshotDir) }

// newSnapshots returns the snapshots of the host. The view must be open.
func (h *host) newSnapshots() *snapshots.Store {
	return snapshots.New(snapshots.Config{
		Dir: h.snapshotsDir(), Host: h.cfg.Name, CopyAhead: h.cfg.CopyAhead, System: h.traits.system, CPU: h.traits.cpu,
		Log: h.log, View: h.view, Cache: h.cache, Drivers: h.drivers, Used: h.sandboxes.Origins, Fault: h.fault, Slog: h.slog,
		Go: func(what string, f func() error) { h.spawn(what, func(context.Context) error { return f() }) },
	})
}

func (h *host) volumeDir() string { return filepath.Join(h.cfg.DataDir, volumeDir) }

// newVolumes returns the volumes of the host. The view must be open.
func (h *host) newVolumes() *volumes.Store {
	return volumes.New(volumes.Config{
		Dir: h.volumeDir(), Host: h.cfg.Name, Log: h.log, View: h.view, InUse: h.sandboxes.UsesVolume, Space: h.disk.CheckVolume, Slog: h.slog,
	})
}
