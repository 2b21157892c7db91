package hostd

import (
	"context"
	"time"
)

// storeCursorEvery bounds how many commands a new run reads again in vain.
const storeCursorEvery = time.Second

// storeCursor writes the cursor's position to the journal from time to time.
func (h *host) storeCursor(ctx context.Context) error {
	t := time.NewTicker(storeCursorEvery)
	defer t.Stop()
	stored := h.cursor.Position()
	for {
		select {
		case <-ctx.Done():
			if h.runCtx.Err() != nil {
				return nil
			}
			return h.journal.SetCursor(h.cursor.Position())
		case <-t.C:
		}
		pos := h.cursor.Position()
		if pos == stored {
			continue
		}
		if err := h.journal.SetCursor(pos); err != nil { // a full disk must not end the run, which frees space on it
			h.slog.Warn("store command cursor failed", "err", err)
			continue
		}
		stored = pos
		if err := h.fault("cursorStored"); err != nil {
			return err
		}
	}
}
