package events

import (
	"context"
	"errors"
	"strings"
	"sync"
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
		errs = append(errs, t.sweep(ctx, deletedAge))
	}
	_, err = v.sweepHooks(ctx, deletedAge)
	errs = append(errs, store.Unavailable("sweep", streams.Hooks, err))
	return errors.Join(errs...)
}

func (v *View) sweepSandboxes(ctx context.Context, age time.Duration) (int, error) {
	return v.swept.sweep(ctx, v.progress, streams.Sandboxes, age, v.active)
}

// swept is the progress of a view through the old records of a stream. It remembers what it
// found, so that each message is read once.
type swept struct {
	mu    sync.Mutex
	next  uint64          // stream sequence to continue at
	found map[string]bool // subjects found and not removed; true: only the last message is left
}

// sweep removes records that have not changed for age and are not needed any more. A
// record takes two sweeps, and its last message is removed last: a view opened meanwhile
// may have read the beginning, and must find the end. The stream's last message stays, too,
// because it marks how far readers must read. Messages that arrive meanwhile stay.
func (w *swept) sweep(ctx context.Context, p *progress, stream string, age time.Duration, needed func(subject string) bool) (n int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := p.Sync(ctx); err != nil {
		return 0, err
	}
	end, err := p.l.conn.LastSeq(ctx, stream)
	if err != nil {
		return 0, err
	}
	s, err := p.l.conn.Stream(ctx, stream)
	if err == nil {
		err = w.scan(ctx, s, streams.SourceOf(stream), age)
	}
	for subject, trimmed := range w.found {
		if err != nil {
			break
		}
		if needed(subject) {
			continue
		}
		last, ok, lErr := s.Last(ctx, subject)
		switch {
		case lErr != nil:
			err = lErr
		case !ok: // another reaper was faster
			delete(w.found, subject)
		case time.Since(last.Time) < age || last.Seq >= end:
		case trimmed:
			err = s.Purge(ctx, subject, last.Seq+1)
			delete(w.found, subject)
			n++
		default:
			err = s.PurgeButLast(ctx, subject)
			w.found[subject] = true
		}
	}
	return n, err
}

// scan continues reading old messages.
func (w *swept) scan(ctx context.Context, s store.Stream, all string, age time.Duration) error {
	if w.found == nil {
		w.found = make(map[string]bool)
	}
	for {
		m, ok, err := s.Next(ctx, all, w.next)
		if err != nil || !ok || time.Since(m.Time) < age {
			return err
		}
		w.next = m.Seq + 1
		if _, met := w.found[m.Subject]; !met {
			w.found[m.Subject] = false
		}
	}
}

// active reports whether the sandbox of a subject has not ended. A sandbox unknown to the
// view has ended: the view dropped it, or only the end of its record is left.
func (v *View) active(subject string) bool {
	s, ok := v.Sandbox(sandbox.ID(lastToken(subject)))
	return ok && !s.Over()
}

func lastToken(subject string) string { return subject[strings.LastIndexByte(subject, '.')+1:] }

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
