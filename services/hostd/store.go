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

// store copies what only this host has to the servers' store, until ctx ends: one
// after the other, first what somebody waits for. Who is cut off begins again, and
// finds the parts that he has stored.
func (h *host) store(ctx context.Context) error {
	changed, stop := h.view.Changes()
	defer stop()
	large := make(map[sandbox.SnapshotID]bool) // that are not copied before somebody asks
	for {
		var again <-chan time.Time
		for ctx.Err() == nil {
			s, ok := h.uncopied(large)
			if !ok {
				break
			}
			if err := h.copySnapshot(ctx, &s, large); err != nil && ctx.Err() == nil {
				h.slog.Warn("a snapshot cannot be copied yet", "snapshot", s.ID, "err", err)
				again = time.After(storeRetry)
				break
			}
		}
		h.giveAway()
		select {
		case <-ctx.Done():
			return nil
		case <-again:
		case <-changed:
		}
	}
}

// uncopied gives a snapshot that this host is to copy.
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

// files is where this host has a snapshot; call release when it is not needed any
// more.
func (h *host) files(s *sandbox.Snapshot) (dir string, release func(), ok bool) {
	if dir, ok := h.ownSnapshot(s); ok {
		return dir, func() {}, true
	}
	tree, ok := h.heldCopy(s)
	if !ok {
		return "", func() {}, false
	}
	return tree.Root, tree.Release, true
}

// copySnapshot copies a snapshot and says so in the log, or why it cannot be. An
// error is worth another try.
func (h *host) copySnapshot(ctx context.Context, s *sandbox.Snapshot, large map[sandbox.SnapshotID]bool) error {
	dir, release, ok := h.files(s)
	defer release()
	if !ok {
		return nil
	}
	if !s.Copy.Wanted {
		size, err := templates.Measure(ctx, dir)
		if err != nil && ctx.Err() == nil {
			h.slog.Warn("a snapshot is not copied before somebody asks for it", "snapshot", s.ID, "err", err)
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
		h.slog.Warn("a snapshot was not copied", "snapshot", s.ID, "err", err)
	} else {
		h.slog.Debug("a snapshot was copied", "snapshot", s.ID, "took", time.Since(begun))
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

// pack copies a directory: the error is in the copy, too, if it has one to tell.
func (h *host) pack(ctx context.Context, dir string, replace bool) (sandbox.Copy, error) {
	raw, err := templates.Pack(ctx, dir, template.MaxTar, func(ctx context.Context, sum template.Sum, packed []byte) error {
		if err := h.fault("copying"); err != nil {
			return err
		}
		return h.log.Kept().Put(ctx, sum, packed, replace)
	})
	if err != nil {
		return sandbox.Copy{Refusal: kind.Of(err), Reason: "it cannot be stored: " + kind.Message(err)}, err
	}
	return sandbox.Copy{Manifest: string(raw)}, nil
}

// check sees whether all parts of a copy are there that is named now: before it was,
// a sweep may have taken one that was there already for forgotten.
func (h *host) check(ctx context.Context, s *sandbox.Snapshot) error {
	m, _, err := template.Decode([]byte(s.Copy.Manifest))
	if err != nil {
		return nil //nolint:nilerr // there is no copy
	}
	for _, sum := range m.Parts {
		has, err := h.log.Kept().Has(ctx, sum)
		if err != nil {
			return err
		}
		if !has {
			return h.doubt(ctx, s)
		}
	}
	return nil
}

// giveAway makes the snapshots that have a copy the cache's, which drops them when
// others need the room, as soon as no sandbox stands on them.
func (h *host) giveAway() {
	entries, err := os.ReadDir(filepath.Join(h.cfg.DataDir, snapshotDir))
	if err != nil {
		return // there are none
	}
	for _, e := range entries {
		s, ok := h.view.Snapshot(sandbox.SnapshotID(e.Name()))
		if !ok || s.Deleted || s.Copy.Manifest == "" || s.Copy.Wanted {
			continue
		}
		if err := h.give(&s); err != nil && !errors.Is(err, fs.ErrNotExist) { // else it was deleted meanwhile
			h.slog.Error("a snapshot cannot be given to the cache", "snapshot", s.ID, "err", err)
		}
	}
}

func (h *host) give(s *sandbox.Snapshot) error {
	h.origin.Lock()
	defer h.origin.Unlock()
	if _, stands := h.origins()[s.ID]; stands {
		return nil
	}
	return h.templates.Adopt(h.snapshotDir(s.ID), []byte(s.Copy.Manifest))
}
