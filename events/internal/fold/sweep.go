package fold

import (
	"context"
	"sync"
	"time"

	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/internal/streams"
)

// Swept is the progress of a view through the old records of a stream. It remembers what it
// found, so that each message is read once.
type Swept struct {
	mu    sync.Mutex
	next  uint64          // stream sequence to continue at
	found map[string]bool // subjects found and not removed; true: only the last message is left
}

// Sweep removes records that have not changed for age and are not needed any more. A
// record takes two sweeps, and its last message is removed last: a view opened meanwhile
// may have read the beginning, and must find the end. The stream's last message stays, too,
// because it marks how far readers must read. Messages that arrive meanwhile stay.
func (w *Swept) Sweep(ctx context.Context, p *Progress, stream string, age time.Duration, needed func(subject string) bool) (n int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := p.Sync(ctx); err != nil {
		return 0, err
	}
	end, err := p.conn.LastSeq(ctx, stream)
	if err != nil {
		return 0, err
	}
	s, err := p.conn.Stream(ctx, stream)
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
func (w *Swept) scan(ctx context.Context, s store.Stream, all string, age time.Duration) error {
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
