package proctable

import (
	"context"
	"time"

	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/process"
)

// showTimeout bounds AwaitShown: the catalog may have lost an entry, or not be writable.
const showTimeout = 10 * time.Second

// AwaitShown waits until the view has what the events of a process report: that it started, or
// that its record ended. Hosts write both at the same time. It returns at the latest after
// showTimeout, or with ctx.
func (t *Table) AwaitShown(ctx context.Context, id process.ID, evs []process.Event) {
	shown := shownBy(evs)
	if shown == nil {
		return
	}
	known := false
	done := func() bool {
		var s process.Summary
		s, _, known = t.get(id)
		return known && shown(&s)
	}
	t.progress.Lock()
	ok := done()
	t.progress.Unlock()
	if ok {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, showTimeout)
	defer cancel()
	if !known { // the view is late, or the entry does not exist any more
		t.progress.Sync(ctx, streams.Catalog) //nolint:errcheck // the view is not waited for during an outage
	}
	t.progress.Wait(ctx, func() bool { return done() || !known }) //nolint:errcheck // likewise
}

// shownBy returns how an entry of the catalog shows what events report; nil: they report nothing
// that it has.
func shownBy(evs []process.Event) func(*process.Summary) bool {
	var shown func(*process.Summary) bool
	for i := range evs {
		switch evs[i].Body.(type) {
		case process.Started:
			shown = started
		case process.Finished:
			return ended
		case process.Accepted, process.Wrote, process.Omitted, process.StdinAcked, process.Resized, process.Signaled,
			process.Truncated, process.Gap, process.Failed, process.Exited, process.Lost:
		}
	}
	return shown
}

func started(s *process.Summary) bool { return !s.Started.IsZero() || !s.Active() }

func ended(s *process.Summary) bool { return !s.Active() }
