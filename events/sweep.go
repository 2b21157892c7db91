package events

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/events/sandbox"
)

// SweepRecords removes the records of what is over, and to which nothing came for so long:
// of sandboxes that ended, for thirty days, and of snapshots, volumes and secrets that were
// deleted, for two. However old a sandbox is that lives, or is paused, its record stays, and
// so does that of a snapshot that one stands on, and of a volume that its host has not
// removed. What can be swept is; Unavailable where the log cannot be read.
func (v *View) SweepRecords(ctx context.Context) error {
	var errs []error
	for _, old := range []struct {
		stream string
		age    time.Duration
		sweep  func(context.Context, time.Duration) (int, error)
	}{
		{streamSandboxes, auditAge, v.sweepSandboxes}, {streamSnapshots, leftAge, v.sweepSnapshots},
		{streamVolumes, leftAge, v.sweepVolumes}, {streamVault, leftAge, v.sweepSecrets},
		{streamHooks, leftAge, v.sweepHooks},
	} {
		_, err := old.sweep(ctx, old.age)
		errs = append(errs, unavailable("sweep", old.stream, err))
	}
	return errors.Join(errs...)
}

func (v *View) sweepSandboxes(ctx context.Context, age time.Duration) (int, error) {
	return v.sweepRecords(ctx, &v.swept.sandboxes, streamSandboxes, "sbx.>", age, v.lives)
}

func (v *View) sweepSnapshots(ctx context.Context, age time.Duration) (int, error) {
	stands := sync.OnceValue(func() map[sandbox.SnapshotID]bool {
		v.mu.Lock()
		defer v.mu.Unlock()
		return v.stoodOn(time.Now())
	})
	// One that the view does not know was deleted: it has forgotten it.
	return v.sweepRecords(ctx, &v.swept.snapshots, streamSnapshots, "snap.>", age, func(subject string) bool {
		s, ok := v.Snapshot(sandbox.SnapshotID(lastToken(subject)))
		return ok && (!s.Deleted || stands()[s.ID])
	})
}

func (v *View) sweepVolumes(ctx context.Context, age time.Duration) (int, error) {
	return v.sweepRecords(ctx, &v.swept.volumes, streamVolumes, "vol.>", age, func(subject string) bool {
		v.mu.Lock()
		defer v.mu.Unlock()
		s, ok := v.volumes[subject]
		return ok && !s.Over()
	})
}

func (v *View) sweepSecrets(ctx context.Context, age time.Duration) (int, error) {
	return v.sweepRecords(ctx, &v.swept.secrets, streamVault, "vault.>", age, func(subject string) bool {
		v.mu.Lock()
		defer v.mu.Unlock()
		s, ok := v.secrets[subject]
		return ok && !s.Removed
	})
}

func (v *View) sweepHooks(ctx context.Context, age time.Duration) (int, error) {
	return v.sweepRecords(ctx, &v.swept.hooks, streamHooks, "hook.>", age, func(subject string) bool {
		v.mu.Lock()
		defer v.mu.Unlock()
		h := v.hooks[hookKey(subject)]
		return h != nil && !h.doc.Removed
	})
}

// swept is how far a view has looked for old records in a stream. What it met is looked at
// again, so that each message is read once.
type swept struct {
	mu   sync.Mutex
	next uint64          // where it goes on
	left map[string]bool // subjects of what it met and is there; true: but for the last message
}

// sweepRecords removes what nothing came to for an age and is not needed any more. It takes
// two sweeps for a record, and its last message goes last: a view that
// is opened meanwhile may have read the beginning, and must find the end. The stream's last
// message stays, too: by it others know how far there is to read. What comes to a subject
// meanwhile stays.
func (v *View) sweepRecords(ctx context.Context, w *swept, stream, all string, age time.Duration, needed func(subject string) bool) (n int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := v.Sync(ctx); err != nil {
		return 0, err
	}
	end, err := v.l.lastSeq(ctx, stream)
	if err != nil {
		return 0, err
	}
	s, err := v.l.js.Stream(ctx, stream)
	if err == nil {
		err = w.look(ctx, s, all, age)
	}
	for subject, trimmed := range w.left {
		if err != nil {
			break
		}
		if needed(subject) {
			continue
		}
		last, lErr := s.GetLastMsgForSubject(ctx, subject)
		switch {
		case errors.Is(lErr, jetstream.ErrMsgNotFound): // another reaper was faster
			delete(w.left, subject)
		case lErr != nil:
			err = lErr
		case time.Since(last.Time) < age || last.Sequence >= end:
		case trimmed:
			err = s.Purge(ctx, jetstream.WithPurgeSubject(subject), jetstream.WithPurgeSequence(last.Sequence+1))
			delete(w.left, subject)
			n++
		default:
			err = s.Purge(ctx, jetstream.WithPurgeSubject(subject), jetstream.WithPurgeKeep(1))
			w.left[subject] = true
		}
	}
	return n, err
}

// look reads on through what is old.
func (w *swept) look(ctx context.Context, s jetstream.Stream, all string, age time.Duration) error {
	if w.left == nil {
		w.left = make(map[string]bool)
	}
	for {
		m, err := s.GetMsg(ctx, max(w.next, 1), jetstream.WithGetMsgSubject(all))
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
	s, ok := v.Sandbox(sandbox.ID(lastToken(subject)))
	return ok && !s.Over()
}

func lastToken(subject string) string { return subject[strings.LastIndexByte(subject, '.')+1:] }

const (
	// leftAge is how old the record of a deleted snapshot, volume or secret is when it goes: by
	// then every host that lives has removed its files, and no command that makes it is read again.
	leftAge = 2 * commandAge
	// keptAge is for how much longer a view has it, and for how long after the end of a
	// sandbox that stood on it: its host has removed the files by then.
	keptAge = commandAge
)

// forgetSnapshots lets go of what was deleted before then, and that nobody needs any more.
// The view is locked, and has what the log has of sandboxes.
func (v *View) forgetSnapshots(before time.Time) {
	var stands map[sandbox.SnapshotID]bool
	for id, s := range v.snapshots {
		if !s.Deleted || !s.Changed.Before(before) {
			continue
		}
		if stands == nil {
			stands = v.stoodOn(before)
		}
		if !stands[id] {
			delete(v.snapshots, id)
		}
	}
}

// forgetNamed is forgetSnapshots of volumes and secrets.
func (v *View) forgetNamed(before time.Time) {
	for subject, s := range v.volumes {
		if s.Over() && s.Changed.Before(before) {
			delete(v.volumes, subject)
		}
	}
	for subject, s := range v.secrets {
		if s.Removed && s.changed.Before(before) {
			delete(v.secrets, subject)
		}
	}
	for key, h := range v.hooks {
		if h.doc.Removed && h.doc.Changed.Before(before) {
			v.forgotten.add(&h.cursor)
			delete(v.hooks, key)
		}
	}
}

// stoodOn are the snapshots that sandboxes stand on which live, or ended since then. The
// view is locked.
func (v *View) stoodOn(since time.Time) map[sandbox.SnapshotID]bool {
	stands := make(map[sandbox.SnapshotID]bool)
	for _, s := range v.sandboxes {
		if s.Request.From != "" && (!s.Over() || s.Ended.After(since)) {
			stands[s.Request.From] = true
		}
	}
	return stands
}
