package hostd

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// cursor knows which of the host's commands are done. They begin in order and
// end in any; its place is the last one before which all have ended.
type cursor struct {
	mu   sync.Mutex
	last uint64
	open map[uint64]debt
}

// debt is what a command that is not done holds of our memory, and of whose share.
type debt struct {
	of    *atomic.Int64 // nil: nobody's
	bytes int64
}

func newCursor(rev uint64) *cursor {
	return &cursor{last: rev, open: make(map[uint64]debt)}
}

// begin notes a command as not done.
func (c *cursor) begin(rev uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = max(c.last, rev)
	c.open[rev] = debt{}
}

// charge has a command that is not done count as so many bytes until it ends.
func (c *cursor) charge(rev uint64, of *atomic.Int64, bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if was, open := c.open[rev]; open && was.of == nil {
		c.open[rev] = debt{of, bytes}
		of.Add(bytes)
	}
}

// end notes that a command need not be looked at again. It may be repeated.
func (c *cursor) end(rev uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d := c.open[rev]; d.of != nil {
		d.of.Add(-d.bytes)
	}
	delete(c.open, rev)
}

// place is where the next life goes on reading.
func (c *cursor) place() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	place := c.last
	for rev := range c.open {
		place = min(place, rev-1)
	}
	return place
}

// noteEvery bounds how many commands a new life reads again in vain.
const noteEvery = time.Second

// note writes the cursor's place to the journal from time to time.
func (h *host) note(ctx context.Context) error {
	t := time.NewTicker(noteEvery)
	defer t.Stop()
	noted := h.cursor.place()
	for {
		select {
		case <-ctx.Done():
			if h.life.Err() != nil {
				return nil
			}
			return h.journal.setCursor(h.cursor.place())
		case <-t.C:
		}
		place := h.cursor.place()
		if place == noted {
			continue
		}
		if err := h.journal.setCursor(place); err != nil { // a full disk must not end who makes room on it
			h.slog.Warn("how far commands were read cannot be noted", "err", err)
			continue
		}
		noted = place
		if err := h.fault("noted"); err != nil {
			return err
		}
	}
}
