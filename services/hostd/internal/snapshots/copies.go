package snapshots

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/template"
	"github.com/millrace/millrace/services/hostd/internal/templates"
)

// storeRetry is how long a failed copy waits.
const storeRetry = 5 * time.Second

// Run copies snapshots that only this host has to the servers' object store, until ctx ends:
// one after the other, those that a client waits for first. An interrupted copy starts again and
// finds the parts that are stored.
func (st *Store) Run(ctx context.Context) error {
	changed, stop := st.cfg.View.Changes()
	defer stop()
	large := make(map[sandbox.SnapshotID]bool) // that are copied on request only
	for {
		var again <-chan time.Time
		for ctx.Err() == nil {
			s, ok := st.uncopied(large)
			if !ok {
				break
			}
			if err := st.copySnapshot(ctx, &s, large); err != nil && ctx.Err() == nil {
				st.cfg.Slog.Warn("copy snapshot failed, will retry", "snapshot", s.ID, "err", err)
				again = time.After(storeRetry)
				break
			}
		}
		st.giveToCache()
		select {
		case <-ctx.Done():
			return nil
		case <-again:
		case <-changed:
		}
	}
}

// uncopied returns a snapshot that this host must copy.
func (st *Store) uncopied(large map[sandbox.SnapshotID]bool) (sandbox.Snapshot, bool) {
	all := st.cfg.View.Snapshots(func(s *sandbox.Snapshot) bool {
		c := &s.Copy
		ahead := s.Host == st.cfg.Host && !s.Internal && s.Fits != "" && c.Manifest == "" && c.Reason == "" && !large[s.ID]
		return !s.Deleted && (c.Wanted || ahead)
	})
	all = slices.DeleteFunc(all, func(s sandbox.Snapshot) bool {
		_, release, ok := st.files(&s)
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
func (st *Store) files(s *sandbox.Snapshot) (dir string, release func(), ok bool) {
	if dir, ok := st.Own(s); ok {
		return dir, func() {}, true
	}
	tree, ok := st.Hold(s)
	if !ok {
		return "", func() {}, false
	}
	return tree.Root, tree.Release, true
}

// copySnapshot copies a snapshot and records the copy, or why there cannot be one. An error is
// worth a retry.
func (st *Store) copySnapshot(ctx context.Context, s *sandbox.Snapshot, large map[sandbox.SnapshotID]bool) error {
	dir, release, ok := st.files(s)
	defer release()
	if !ok {
		return nil
	}
	if !s.Copy.Wanted {
		size, err := templates.Measure(ctx, dir)
		if err != nil && ctx.Err() == nil {
			st.cfg.Slog.Warn("measure snapshot failed, will copy it on request only", "snapshot", s.ID, "err", err)
		}
		if large[s.ID] = err != nil || size > st.cfg.CopyAhead; large[s.ID] {
			return ctx.Err()
		}
	}
	begun := time.Now()
	made, err := st.pack(ctx, dir, s.Copy.Manifest != "")
	if ctx.Err() != nil || kind.Is(err, kind.Unavailable) {
		return err
	}
	if err != nil {
		st.cfg.Slog.Warn("copy snapshot failed", "snapshot", s.ID, "err", err)
	} else {
		st.cfg.Slog.Debug("snapshot copied", "snapshot", s.ID, "took", time.Since(begun))
	}
	now, err := st.cfg.View.ChangeSnapshot(ctx, s.ID, func(now *sandbox.Snapshot) bool {
		now.Copy = made
		return true
	})
	if err != nil {
		return err
	}
	if now.Deleted {
		return st.cfg.View.DropCopy(ctx, &made)
	}
	return st.check(ctx, &now)
}

// pack copies a directory. The copy has the reason of a failure, too.
func (st *Store) pack(ctx context.Context, dir string, replace bool) (sandbox.Copy, error) {
	raw, err := templates.Pack(ctx, dir, template.MaxTar, func(ctx context.Context, sum template.Sum, packed []byte) error {
		if err := st.cfg.Fault("copying"); err != nil {
			return err
		}
		return st.cfg.Log.CopyStore().Put(ctx, sum, packed, replace)
	})
	if err != nil {
		return sandbox.Copy{Refusal: kind.Of(err), Reason: "it cannot be stored: " + kind.Message(err)}, err
	}
	return sandbox.Copy{Manifest: string(raw)}, nil
}

// check verifies that all parts of a copy exist once the copy is recorded: before, a sweep may
// have removed a part that was stored earlier as unreferenced.
func (st *Store) check(ctx context.Context, s *sandbox.Snapshot) error {
	m, _, err := template.Decode([]byte(s.Copy.Manifest))
	if err != nil {
		return nil //nolint:nilerr // there is no copy
	}
	for _, sum := range m.Parts {
		has, err := st.cfg.Log.CopyStore().Has(ctx, sum)
		if err != nil {
			return err
		}
		if !has {
			return st.doubt(ctx, s)
		}
	}
	return nil
}

// giveToCache moves the snapshots that have a copy to the cache as soon as no sandbox is based on
// them. The cache drops them when it needs the space.
func (st *Store) giveToCache() {
	entries, err := os.ReadDir(st.cfg.Dir)
	if err != nil {
		return // no snapshots
	}
	for _, e := range entries {
		s, ok := st.cfg.View.Snapshot(sandbox.SnapshotID(e.Name()))
		if !ok || s.Deleted || s.Copy.Manifest == "" || s.Copy.Wanted {
			continue
		}
		if err := st.give(&s); err != nil && !errors.Is(err, fs.ErrNotExist) { // otherwise it was just deleted
			st.cfg.Slog.Error("move snapshot to cache failed", "snapshot", s.ID, "err", err)
		}
	}
}

func (st *Store) give(s *sandbox.Snapshot) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if _, stands := st.cfg.Used()[s.ID]; stands {
		return nil
	}
	return st.cfg.Cache.Adopt(st.dir(s.ID), []byte(s.Copy.Manifest))
}
