package snapshots

import (
	"errors"
	"io/fs"
	"os"

	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/rmtree"
)

// removedSuffix is the suffix of a snapshot's directory while it is removed.
const removedSuffix = ".removed"

// Sweep removes the snapshots that were deleted or never reached the log, except those
// that a sandbox is based on. With deleted set it removes only the deleted ones; otherwise it
// must not run concurrently with snapshot.
func (st *Store) Sweep(deleted bool) {
	entries, err := os.ReadDir(st.cfg.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		st.cfg.Slog.Error("list snapshots failed", "err", err)
	}
	used := st.cfg.Used()
	for _, e := range entries {
		id := sandbox.SnapshotID(e.Name())
		s, ok := st.cfg.View.Snapshot(id)
		if _, stands := used[id]; stands || ok && !s.Deleted || deleted && !ok {
			continue
		}
		if err := st.remove(id); err != nil {
			st.cfg.Slog.Error("remove snapshot failed", "snapshot", id, "err", err)
		}
	}
	st.sweepCopies()
}

// remove renames a snapshot's directory and removes it in the background: it may have
// many files.
func (st *Store) remove(id sandbox.SnapshotID) error {
	going := st.dir(id) + removedSuffix
	if err := os.Rename(st.dir(id), going); err != nil {
		return err
	}
	st.cfg.Go("remove snapshot "+string(id), func() error { return rmtree.Tree(going) })
	return nil
}

// sweepCopies drops the copies of deleted snapshots that no sandbox is based on.
func (st *Store) sweepCopies() {
	live := make(map[string]bool)
	gone := st.cfg.View.Snapshots(func(s *sandbox.Snapshot) bool {
		if !s.Deleted {
			live[s.Copy.Manifest] = true
		}
		return s.Deleted && s.Copy.Manifest != ""
	})
	for _, s := range gone {
		if id := CopyID(&s.Copy); !live[s.Copy.Manifest] {
			st.cfg.Go("remove copy "+string(id), func() error { st.cfg.Cache.Drop(id); return nil })
		}
	}
}
