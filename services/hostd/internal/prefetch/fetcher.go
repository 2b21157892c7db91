package prefetch

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"time"

	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/template"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/services/hostd/internal/disk"
	"github.com/millrace/millrace/services/hostd/internal/snapshots"
	"github.com/millrace/millrace/services/hostd/internal/templates"
)

// pause is the time between two checks for templates to fetch.
const pause = 2 * time.Second

// Config configures a Fetcher. All fields are required.
type Config struct {
	DataDir   string // directory on the disk of the cache
	View      *catalog.View
	Cache     *templates.Cache
	Snapshots *snapshots.Store
	Slog      *slog.Logger
}

// Fetcher fetches templates into the cache.
type Fetcher struct{ cfg Config }

// New returns a fetcher.
func New(cfg Config) *Fetcher { return &Fetcher{cfg} }

// Get returns the tree of a template, which it fetches if it is missing.
func (f *Fetcher) Get(ctx context.Context, t *catalog.Template) (*templates.Tree, error) {
	raw, _, err := t.Manifest.Encode()
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	tree, err := f.cfg.Cache.Get(ctx, raw)
	if err == nil && time.Since(begun) > time.Second {
		f.cfg.Slog.Info("template fetched", "template", t.Name+":"+t.Tag, "id", t.ID, "mib", t.Manifest.Size>>20, "took", time.Since(begun).Round(time.Millisecond))
	}
	return tree, err
}

// Run fetches templates before they are needed, as long as there is space for them without
// removing others.
func (f *Fetcher) Run(ctx context.Context) error {
	changed, stop := f.cfg.View.Changes()
	defer stop()
	tried := make(map[template.ID]time.Time) // the tag's time
	for {
		for _, t := range f.cfg.View.Templates("") {
			if !t.Tagged.After(tried[t.ID]) || t.Manifest.Arch != runtime.GOARCH || !f.lacks(t.ID, &t.Manifest) {
				continue
			}
			tried[t.ID] = t.Tagged // a failed one is retried when it is needed, or tagged again
			tree, err := f.Get(ctx, &t)
			if err != nil && !errors.Is(err, context.Canceled) {
				f.cfg.Slog.Warn("prefetch template failed", "template", t.ID, "err", err)
			}
			tree.Release()
		}
		f.runBuilt(ctx, tried)
		if !waiting.Sleep(ctx, pause) {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

// lacks reports whether a template should be prefetched: it is missing, and fits on the disk
// without an eviction.
func (f *Fetcher) lacks(id template.ID, m *template.Manifest) bool {
	return f.cfg.Cache.Lacks(id, m, int64(disk.SpaceOf(f.cfg.DataDir).Margin()))
}

// runBuilt is one round of Run for the templates that builds made.
func (f *Fetcher) runBuilt(ctx context.Context, tried map[template.ID]time.Time) {
	for _, t := range f.cfg.View.Templates("") {
		if t.Built == nil {
			continue
		}
		s, ok := f.cfg.View.Snapshot(sandbox.SnapshotID(t.Built.Snapshot))
		if _, own := f.cfg.Snapshots.Own(&s); !ok || own || s.Deleted || s.Copy.Manifest == "" || s.Copy.Wanted || !f.cfg.Snapshots.CanUse(&s) {
			continue
		}
		m, id, err := template.Decode([]byte(s.Copy.Manifest))
		if err != nil || !t.Tagged.After(tried[id]) || !f.lacks(id, &m) {
			continue
		}
		tried[id] = t.Tagged
		tree, err := f.cfg.Cache.Get(ctx, []byte(s.Copy.Manifest))
		if err != nil && ctx.Err() == nil {
			f.cfg.Slog.Warn("prefetch built template failed", "template", t.Name, "err", err)
		}
		tree.Release()
	}
}
