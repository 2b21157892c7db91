package hostd

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// cursor tracks which of the host's commands are done. They begin in order and end in any; its
// position is the last one before which all have ended.
type cursor struct {
	mu   sync.Mutex
	last uint64
	open map[uint64]charge
}

// charge is the memory that an open command is charged with, and the account.
type charge struct {
	of    *atomic.Int64 // nil: none
	bytes int64
}

func newCursor(rev uint64) *cursor {
	return &cursor{last: rev, open: make(map[uint64]charge)}
}

// begin adds an open command.
func (c *cursor) begin(rev uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = max(c.last, rev)
	c.open[rev] = charge{}
}

// charge charges an open command to an account until it ends.
func (c *cursor) charge(rev uint64, of *atomic.Int64, bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if was, open := c.open[rev]; open && was.of == nil {
		c.open[rev] = charge{of, bytes}
		of.Add(bytes)
	}
}

// end removes a command that need not be read again. It may be called repeatedly.
func (c *cursor) end(rev uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d := c.open[rev]; d.of != nil {
		d.of.Add(-d.bytes)
	}
	delete(c.open, rev)
}

// position returns where the next run continues to read.
func (c *cursor) position() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	pos := c.last
	for rev := range c.open {
		pos = min(pos, rev-1)
	}
	return pos
}

// storeCursorEvery bounds how many commands a new run reads again in vain.
const storeCursorEvery = time.Second

// storeCursor writes the cursor's position to the journal from time to time.
func (h *host) storeCursor(ctx context.Context) error {
	t := time.NewTicker(storeCursorEvery)
	defer t.Stop()
	stored := h.cursor.position()
	for {
		select {
		case <-ctx.Done():
			if h.runCtx.Err() != nil {
				return nil
			}
			return h.journal.setCursor(h.cursor.position())
		case <-t.C:
		}
		pos := h.cursor.position()
		if pos == stored {
			continue
		}
		if err := h.journal.setCursor(pos); err != nil { // a full disk must not end the run, which frees space on it
			h.slog.Warn("store command cursor failed", "err", err)
			continue
		}
		stored = pos
		if err := h.fault("cursorStored"); err != nil {
			return err
		}
	}
}
