package builder

import (
	"context"
	"errors"
	"log/slog"
	"strconv"

	"github.com/millrace/millrace/events/build"
	"github.com/millrace/millrace/events/command"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/core"
)

// Layers stores layers.
type Layers interface {
	BaseLayers
	Layer(p core.Principal, sum string, usable func(*sandbox.Snapshot) bool) (sandbox.Snapshot, bool)
	LayerAmong(ids []string, sum string) (sandbox.Snapshot, bool)
	EnsureLayer(ctx context.Context, p core.Principal, sbx sandbox.ID, take command.TakeSnapshot) error
	KeepLayer(ctx context.Context, id sandbox.SnapshotID) error
}

// Keys derives keys from the cluster's secret.
type Keys interface{ DeriveKey(text string) string }

// layers finds the layers of a build, and makes the missing ones in sandboxes.
type layers struct {
	record      *buildRecord
	executor    *executor
	principal   core.Principal
	store       Layers
	keys        Keys
	provisioner Provisioner
	sandboxes   Sandboxes
	log         *slog.Logger

	failedHosts map[string]bool // hosts that failed to create a sandbox on a layer that only they have
}

// newestLayer returns the newest layer in the build's record, and how many of the layers it
// includes: layers below the newest may have been dropped and are not needed.
func (ls *layers) newestLayer(ctx context.Context, from origin, layers []layer) (origin, int, error) {
	for n := len(layers); n > 0; n-- {
		snap, ok := ls.store.LayerAmong(ls.record.mark().Layers, layers[n-1].sum)
		if !ok || !ls.usable(&snap) {
			continue
		}
		snap, err := ls.store.ClaimLayer(ctx, snap.ID)
		if kind.Is(err, kind.NotFound) {
			continue
		}
		from.snap, from.template = snap, snap.Template
		return from, n, err
	}
	return from, 0, nil
}

// layer builds a layer on another, unless an equal one exists. It records the layer that it
// chooses and then claims it, so that PruneLayers leaves it alone from then on.
func (ls *layers) layer(ctx context.Context, from origin, l *layer) (origin, error) {
	for begun := l.step != packagesStep && int(ls.record.mark().Step) >= l.step; ; begun = false {
		own, _ := ls.layerID(l.step)
		snap, ok := ls.store.LayerOf(own)
		title := l.title(ls.executor.steps)
		if !ok && !l.force {
			if snap, ok = ls.store.Layer(ls.principal, l.sum, ls.usable); ok {
				title = "CACHED " + title
			}
		}
		mark, lines := ls.record.mark(), []build.Line(nil)
		if !begun {
			mark, lines = build.Mark{Step: uint32(l.step)}, append(lines, line(build.Info, title))
		}
		mark.Layers = layersToKeep(from, snap.ID)
		if err := ls.record.log(ctx, mark, lines...); err != nil {
			return from, err
		}
		var err error
		if ok {
			snap, err = ls.store.ClaimLayer(ctx, snap.ID)
			if kind.Is(err, kind.NotFound) {
				continue // dropped meanwhile: reuse another or build it
			}
		} else {
			snap, err = ls.make(ctx, from, l)
		}
		if err != nil {
			return from, err
		}
		// The previous owner may have used another template, whose tag has moved since.
		from.snap, from.template = snap, snap.Template
		return from, nil
	}
}

// make builds a layer in a sandbox of its own, which is kept until the layer exists: a
// successor needs it, and clean ends it if the build fails.
func (ls *layers) make(ctx context.Context, from origin, l *layer) (snap sandbox.Snapshot, err error) {
	sbx, err := ls.sandbox(ctx, from, l.settings, l.step)
	if err != nil {
		return snap, err
	}
	for _, dir := range l.dirs {
		if err := ls.executor.makeDir(ctx, sbx, dir); err != nil {
			return snap, atStep(strconv.Itoa(dir.step), err)
		}
	}
	if l.do != nil {
		do := ls.executor.command
		switch {
		case l.step == packagesStep:
			do = ls.executor.packages
		case l.do.Type == build.Copy:
			do = ls.executor.copy
		}
		if err := do(ctx, sbx, l); err != nil {
			return snap, err
		}
	}
	if snap, err = ls.saveLayer(ctx, sbx, from, l); err != nil {
		return snap, err
	}
	ls.destroy(ctx, sbx)
	return snap, nil
}

// saveLayer makes a layer of a step's sandbox, and records it as the build's newest. It makes
// another if the layer was dropped before it was recorded.
func (ls *layers) saveLayer(ctx context.Context, sbx sandbox.ID, from origin, l *layer) (sandbox.Snapshot, error) {
	for {
		id, _ := ls.layerID(l.step)
		if err := ls.store.EnsureLayer(ctx, ls.principal, sbx, command.TakeSnapshot{ID: id, Internal: true, Layer: l.sum}); err != nil {
			return sandbox.Snapshot{}, err
		}
		mark := ls.record.mark()
		mark.Layers = layersToKeep(from, id)
		if err := ls.record.log(ctx, mark); err != nil {
			return sandbox.Snapshot{}, err
		}
		if snap, err := ls.store.ClaimLayer(ctx, id); !kind.Is(err, kind.NotFound) {
			return snap, err
		}
	}
}

// layersToKeep returns the layers to keep while one is built on another; the new one may not exist
// yet.
func layersToKeep(on origin, id sandbox.SnapshotID) []string {
	var ids []string
	for _, id := range []sandbox.SnapshotID{on.snap.ID, id} {
		if id != "" {
			ids = append(ids, string(id))
		}
	}
	return ids
}

// layerID returns the id of the layer that the build makes of a step, and how many it made before
// that were dropped or are unusable.
func (ls *layers) layerID(step int) (id sandbox.SnapshotID, dropped int) {
	for what := "layer"; ; what = "layer." + strconv.Itoa(dropped) {
		id = sandbox.KeyedSnapshotID(ls.key(what, step))
		if s, ok := ls.store.LayerOf(id); ok && ls.usable(&s) || !ok && !s.Deleted {
			return id, dropped
		}
		dropped++
	}
}

// key derives a key for the build's n-th object of a kind.
func (ls *layers) key(what string, n int) string {
	return ls.keys.DeriveKey("build." + string(ls.record.current().ID) + "." + what + "." + strconv.Itoa(n))
}

// usable reports whether a layer is in the store, or on a host that has not failed.
func (ls *layers) usable(s *sandbox.Snapshot) bool {
	return s.Copy.Manifest != "" || !ls.failedHosts[s.Host]
}

// dropHost excludes the host in err, and reports whether the build can continue without its layers.
func (ls *layers) dropHost(err error, base *origin) bool {
	var u *sandboxError
	if !errors.As(err, &u) || u.on.ID == base.snap.ID || ls.failedHosts[u.on.Host] {
		return false
	}
	if now, ok := ls.store.LayerOf(u.on.ID); ok && now.Copy.Manifest != "" {
		return false // other hosts can load it
	}
	if ls.failedHosts == nil {
		ls.failedHosts = map[string]bool{}
	}
	ls.failedHosts[u.on.Host] = true
	return true
}
