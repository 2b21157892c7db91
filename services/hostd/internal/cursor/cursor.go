package cursor

import (
	"sync"
	"sync/atomic"
)

// Cursor tracks which of a host's commands are done. They begin in order and end in any; its
// position is the last one before which all have ended.
type Cursor struct {
	mu   sync.Mutex
	last uint64
	open map[uint64]charge
}

// charge is the memory that an open command is charged with, and the account.
type charge struct {
	of    *atomic.Int64 // nil: none
	bytes int64
}

// New returns a cursor at a position.
func New(rev uint64) *Cursor {
	return &Cursor{last: rev, open: make(map[uint64]charge)}
}

// Begin adds an open command.
func (c *Cursor) Begin(rev uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = max(c.last, rev)
	c.open[rev] = charge{}
}

// Charge charges an open command to an account until it ends.
func (c *Cursor) Charge(rev uint64, of *atomic.Int64, bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if was, open := c.open[rev]; open && was.of == nil {
		c.open[rev] = charge{of, bytes}
		of.Add(bytes)
	}
}

// End removes a command that need not be read again. It may be called repeatedly.
func (c *Cursor) End(rev uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d := c.open[rev]; d.of != nil {
		d.of.Add(-d.bytes)
	}
	delete(c.open, rev)
}

// Position returns where the next run continues to read.
func (c *Cursor) Position() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	pos := c.last
	for rev := range c.open {
		pos = min(pos, rev-1)
	}
	return pos
}
