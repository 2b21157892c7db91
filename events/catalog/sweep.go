package catalog

import (
	"context"
	"errors"
	"time"

	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/sandbox"
)

// SweepRecords removes records that have ended and not changed for some time: thirty days
// for sandboxes, two for deleted snapshots, volumes and secrets. It keeps the record of a
// running or paused sandbox however old, of a snapshot that a sandbox is based on, and of a
// volume that its host has not removed. It sweeps as much as it can and returns Unavailable
// if the log cannot be read.
func (v *View) SweepRecords(ctx context.Context) error {
	_, err := v.sweepSandboxes(ctx, streams.AuditAge)
	errs := []error{store.Unavailable("sweep", streams.Sandboxes, err)}
	for _, t := range v.documents {
		errs = append(errs, t.Sweep(ctx, deletedAge))
	}
	_, err = v.sweepHooks(ctx, deletedAge)
	errs = append(errs, store.Unavailable("sweep", streams.Hooks, err))
	return errors.Join(errs...)
}

func (v *View) sweepSandboxes(ctx context.Context, age time.Duration) (int, error) {
	return v.swept.Sweep(ctx, v.progress, streams.Sandboxes, age, v.active)
}

// active reports whether the sandbox of a subject has not ended, or gives its name to one that has
// not. A sandbox unknown to the view has ended: the view dropped it, or only the end of its record
// is left.
func (v *View) active(subject string) bool {
	v.progress.Lock()
	defer v.progress.Unlock()
	s, ok := v.sandboxes[sandbox.ID(lastToken(subject))]
	return ok && (!s.Over() || namesLive(v, &s))
}

const (
	// deletedAge is the age at which the record of a deleted snapshot, volume or secret is
	// removed: by then every running host has removed its files, and no command that
	// creates it is read again.
	deletedAge = 2 * streams.CommandAge
	// viewAge is how much longer a view keeps it, also after the end of a sandbox that was
	// based on it: by then its host has removed the files.
	viewAge = streams.CommandAge
)

// baseSnapshots returns the snapshots that sandboxes are based on which run, or ended since a
// time. The view is locked.
func (v *View) baseSnapshots(since time.Time) map[sandbox.SnapshotID]bool {
	stands := make(map[sandbox.SnapshotID]bool)
	for _, s := range v.sandboxes {
		if s.Request.From != "" && (!s.Over() || s.Ended.After(since)) {
			stands[s.Request.From] = true
		}
	}
	return stands
}
