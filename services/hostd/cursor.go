package hostd

import (
	"context"
	"time"
)

// storeCursorEvery bounds how many commands a new run reads again in vain.
const storeCursorEvery = time.Second

// storeCursor writes the cursor's position to the journal from time to time.
func (r *commandReader) storeCursor(ctx context.Context) error {
	t := time.NewTicker(storeCursorEvery)
	defer t.Stop()
	stored := r.cursor.Position()
	for {
		select {
		case <-ctx.Done():
			if r.h.runCtx.Err() != nil {
				return nil
			}
			return r.h.journal.SetCursor(r.cursor.Position())
		case <-t.C:
		}
		pos := r.cursor.Position()
		if pos == stored {
			continue
		}
		if err := r.h.journal.SetCursor(pos); err != nil { // a full disk must not end the run, which frees space on it
			r.h.slog.Warn("store command cursor failed", "err", err)
			continue
		}
		stored = pos
		if err := r.h.fault("cursorStored"); err != nil {
			return err
		}
	}
}
