package events

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
)

// SweepSandboxes removes the records of sandboxes that ended, and to which nothing came
// for thirty days, and gives their number. However old a sandbox is that lives, or is
// paused, its record stays. Unavailable if the log cannot be read.
func (v *View) SweepSandboxes(ctx context.Context) (int, error) {
	n, err := v.sweepSandboxes(ctx, auditAge)
	return n, kind.Wrap(kind.Unavailable, "sweep", streamSandboxes, err)
}

// swept is how far a view has looked for old records. What it met is looked at again, so
// that each message is read once.
type swept struct {
	mu   sync.Mutex
	next uint64          // where it goes on
	left map[string]bool // subjects of what it met and is there; true: but for the last message
}

// sweepSandboxes takes two sweeps for a record, and its last message goes last: a view that
// is opened meanwhile may have read the beginning, and must find the end. The stream's last
// message stays, too: by it others know how far there is to read.
func (v *View) sweepSandboxes(ctx context.Context, age time.Duration) (n int, err error) {
	v.swept.mu.Lock()
	defer v.swept.mu.Unlock()
	if err := v.Sync(ctx); err != nil {
		return 0, err
	}
	end, err := v.l.lastSeq(ctx, streamSandboxes)
	if err != nil {
		return 0, err
	}
	s, err := v.l.js.Stream(ctx, streamSandboxes)
	if err == nil {
		err = v.swept.look(ctx, s, age)
	}
	for subject, trimmed := range v.swept.left {
		if err != nil {
			break
		}
		if v.lives(subject) {
			continue
		}
		last, lErr := s.GetLastMsgForSubject(ctx, subject)
		switch {
		case errors.Is(lErr, jetstream.ErrMsgNotFound): // another reaper was faster
			delete(v.swept.left, subject)
		case lErr != nil:
			err = lErr
		case time.Since(last.Time) < age || last.Sequence >= end:
		case trimmed:
			err = s.Purge(ctx, jetstream.WithPurgeSubject(subject))
			delete(v.swept.left, subject)
			n++
		default:
			err = s.Purge(ctx, jetstream.WithPurgeSubject(subject), jetstream.WithPurgeKeep(1))
			v.swept.left[subject] = true
		}
	}
	return n, err
}

// look reads on through what is old.
func (w *swept) look(ctx context.Context, s jetstream.Stream, age time.Duration) error {
	if w.left == nil {
		w.left = make(map[string]bool)
	}
	for {
		m, err := s.GetMsg(ctx, max(w.next, 1), jetstream.WithGetMsgSubject("sbx.>"))
		if errors.Is(err, jetstream.ErrMsgNotFound) || err == nil && time.Since(m.Time) < age {
			return nil
		}
		if err != nil {
			return err
		}
		w.next = m.Sequence + 1
		if _, met := w.left[m.Subject]; !met {
			w.left[m.Subject] = false
		}
	}
}

// lives reports whether the sandbox of a subject is not over. One that the view does not
// know is: it has forgotten it, or only the end of its record is left.
func (v *View) lives(subject string) bool {
	s, ok := v.Sandbox(sandbox.ID(subject[strings.LastIndexByte(subject, '.')+1:]))
	return ok && !s.Over()
}

const (
	// leftAge is how old the record of a deleted snapshot is when it goes: by then every host
	// that lives has removed its files, and no command that makes it is read again.
	leftAge = 2 * commandAge
	// keptAge is for how much longer a view has it, so that whoever sweeps knows of it.
	keptAge = commandAge
)

// SweepSnapshots removes the records of snapshots that were deleted two days ago or earlier,
// and that no sandbox stands on, and gives their number. Unavailable as SweepSandboxes.
func (v *View) SweepSnapshots(ctx context.Context) (int, error) {
	n, err := v.sweepSnapshots(ctx, leftAge)
	return n, kind.Wrap(kind.Unavailable, "sweep", streamSnapshots, err)
}

func (v *View) sweepSnapshots(ctx context.Context, age time.Duration) (n int, err error) {
	if err := v.Sync(ctx); err != nil {
		return 0, err
	}
	v.mu.Lock()
	old := v.outlived(time.Now().Add(-age))
	v.mu.Unlock()
	if len(old) == 0 {
		return 0, nil
	}
	s, err := v.l.js.Stream(ctx, streamSnapshots)
	for i := range old {
		if err != nil {
			break
		}
		if err = s.Purge(ctx, jetstream.WithPurgeSubject(snapshotSubject(old[i].Tenant, old[i].ID))); err == nil {
			n++
		}
	}
	return n, err
}

// outlived are the snapshots that were deleted before then, and that nothing needs any more,
// but for the one that was changed last of all: by it others know how far there is to read.
// The view is locked.
func (v *View) outlived(before time.Time) []sandbox.Snapshot {
	var out []sandbox.Snapshot
	for _, s := range v.snapshots {
		if s.Deleted && s.Changed.Before(before) && s.Rev < v.applied[streamSnapshots] {
			out = append(out, s)
		}
	}
	if len(out) == 0 {
		return nil
	}
	stands := make(map[sandbox.SnapshotID]bool)
	for _, s := range v.sandboxes {
		stands[s.Request.From] = stands[s.Request.From] || !s.Over()
	}
	return slices.DeleteFunc(out, func(s sandbox.Snapshot) bool { return stands[s.ID] })
}
