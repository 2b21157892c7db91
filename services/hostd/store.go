package hostd

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/template"
	"github.com/millrace/millrace/services/hostd/internal/templates"
)

const (
	defaultCopyAhead = 4 << 30
	storeRetry       = 5 * time.Second // after an error
)

// store copies snapshots that only this host has to the servers' object store, until ctx ends:
// one after the other, those that a client waits for first. An interrupted copy starts again and
// finds the parts that are stored.
func (h *host) store(ctx context.Context) error {
	changed, stop := h.view.Changes()
	defer stop()
	large := make(map[sandbox.SnapshotID]bool) // that are copied on request only
	for {
		var again <-chan time.Time
		for ctx.Err() == nil {
			s, ok := h.uncopied(large)
			if !ok {
				break
			}
			if err := h.copySnapshot(ctx, &s, large); err != nil && ctx.Err() == nil {
				h.slog.Warn("copy snapshot failed, will retry", "snapshot", s.ID, "err", err)
				again = time.After(storeRetry)
				break
			}
		}
		h.giveToCache()
		select {
		case <-ctx.Done():
			return nil
		case <-again:
		case <-changed:
		}
	}
}

// uncopied returns a snapshot that this host must copy.
func (h *host) uncopied(large map[sandbox.SnapshotID]bool) (sandbox.Snapshot, bool) {
	all := h.view.Snapshots(func(s *sandbox.Snapshot) bool {
		c := &s.Copy
		ahead := s.Host == h.cfg.Name && !s.Internal && s.Fits != "" && c.Manifest == "" && c.Reason == "" && !large[s.ID]
		return !s.Deleted && (c.Wanted || ahead)
	})
	all = slices.DeleteFunc(all, func(s sandbox.Snapshot) bool {
		_, release, ok := h.files(&s)
		release()
		return !ok
	})
	for _, s := range all {
		if s.Copy.Wanted {
			return s, true
		}
	}
	if len(all) == 0 {
		return sandbox.Snapshot{}, false
	}
	return all[len(all)-1], true // the oldest
}

// files returns the directory where this host has a snapshot. The caller calls release when it is
// done.
func (h *host) files(s *sandbox.Snapshot) (dir string, release func(), ok bool) {
	if dir, ok := h.ownSnapshot(s); ok {
		return dir, func() {}, true
	}
	tree, ok := h.holdCopy(s)
	if !ok {
		return "", func() {}, false
	}
	return tree.Root, tree.Release, true
}

// copySnapshot copies a snapshot and records the copy, or why there cannot be one. An error is
// worth a retry.
func (h *host) copySnapshot(ctx context.Context, s *sandbox.Snapshot, large map[sandbox.SnapshotID]bool) error {
	dir, release, ok := h.files(s)
	defer release()
	if !ok {
		return nil
	}
	if !s.Copy.Wanted {
		size, err := templates.Measure(ctx, dir)
		if err != nil && ctx.Err() == nil {
			h.slog.Warn("measure snapshot failed, will copy it on request only", "snapshot", s.ID, "err", err)
		}
		if large[s.ID] = err != nil || size > h.cfg.CopyAhead; large[s.ID] {
			return ctx.Err()
		}
	}
	begun := time.Now()
	made, err := h.pack(ctx, dir, s.Copy.Manifest != "")
	if ctx.Err() != nil || kind.Is(err, kind.Unavailable) {
		return err
	}
	if err != nil {
		h.slog.Warn("copy snapshot failed", "snapshot", s.ID, "err", err)
	} else {
		h.slog.Debug("snapshot copied", "snapshot", s.ID, "took", time.Since(begun))
	}
	now, err := h.view.ChangeSnapshot(ctx, s.ID, func(now *sandbox.Snapshot) bool {
		now.Copy = made
		return true
	})
	if err != nil {
		return err
	}
	if now.Deleted {
		return h.view.DropCopy(ctx, &made)
	}
	return h.check(ctx, &now)
}

// pack copies a directory. The copy has the reason of a failure, too.
func (h *host) pack(ctx context.Context, dir string, replace bool) (sandbox.Copy, error) {
	raw, err := templates.Pack(ctx, dir, template.MaxTar, func(ctx context.Context, sum template.Sum, packed []byte) error {
		if err := h.fault("copying"); err != nil {
			return err
		}
		return h.log.CopyStore().Put(ctx, sum, packed, replace)
	})
	if err != nil {
		return sandbox.Copy{Refusal: kind.Of(err), Reason: "it cannot be stored: " + kind.Message(err)}, err
	}
	return sandbox.Copy{Manifest: string(raw)}, nil
}

// check verifies that all parts of a copy exist once the copy is recorded: before, a sweep may
// have removed a part that was stored earlier as unreferenced.
func (h *host) check(ctx context.Context, s *sandbox.Snapshot) error {
	m, _, err := template.Decode([]byte(s.Copy.Manifest))
	if err != nil {
		return nil //nolint:nilerr // there is no copy
	}
	for _, sum := range m.Parts {
		has, err := h.log.CopyStore().Has(ctx, sum)
		if err != nil {
			return err
		}
		if !has {
			return h.doubt(ctx, s)
		}
	}
	return nil
}

// giveToCache moves the snapshots that have a copy to the cache as soon as no sandbox is based on
// them. The cache drops them when it needs the space.
func (h *host) giveToCache() {
	entries, err := os.ReadDir(filepath.Join(h.cfg.DataDir, snapshotDir))
	if err != nil {
		return // no snapshots
	}
	for _, e := range entries {
		s, ok := h.view.Snapshot(sandbox.SnapshotID(e.Name()))
		if !ok || s.Deleted || s.Copy.Manifest == "" || s.Copy.Wanted {
			continue
		}
		if err := h.give(&s); err != nil && !errors.Is(err, fs.ErrNotExist) { // otherwise it was just deleted
			h.slog.Error("move snapshot to cache failed", "snapshot", s.ID, "err", err)
		}
	}
}

func (h *host) give(s *sandbox.Snapshot) error {
	h.originMu.Lock()
	defer h.originMu.Unlock()
	if _, stands := h.origins()[s.ID]; stands {
		return nil
	}
	return h.templates.Adopt(h.snapshotDir(s.ID), []byte(s.Copy.Manifest))
}
