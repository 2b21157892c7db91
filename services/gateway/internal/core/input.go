package core

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
)

// SendInputOnce is SendInput that may be tried again, at any gateway, with the
// same key of the client's, as long as it is unknown what became of it: the
// process is given the data once. Its last 256 keys are remembered. Conflict also
// if the key was used with other data; Unavailable: try again.
func (c *Core) SendInputOnce(ctx context.Context, p Principal, id process.ID, key string, data []byte, eof bool) error {
	keyOf := func(n int) string {
		sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%d", id, key, n))
		return fmt.Sprintf("input.%x", sum[:16])
	}
	err := c.sendInput(ctx, p, id, data, eof, func(n int) string {
		return process.InputTry(keyOf(n), ulid.Make().String())
	})
	// The input may be what it ended of.
	if kind.Is(err, kind.NotFound) && c.taken(ctx, p, id, keyOf(max(0, (len(data)-1)/maxInput))) {
		return nil
	}
	return err
}

// lookBack is how many of a record's last events are searched for what became of
// an input that the process may have ended of: what it printed at last comes behind.
const lookBack = 1 << 14

// taken reports whether a process that has ended took the input of a key shortly
// before.
func (c *Core) taken(ctx context.Context, p Principal, id process.ID, key string) bool {
	tip, err := c.Tip(ctx, p, id)
	if err != nil {
		return false
	}
	r, err := c.Read(ctx, p, id, tip.Last-min(tip.Last, lookBack))
	if err != nil {
		return false
	}
	defer r.Close()
	ctx, cancel := context.WithTimeout(ctx, c.cfg.CallTimeout)
	defer cancel()
	for r.After() < tip.Last {
		batch, err := r.Next(ctx, time.Second)
		if sawKey(batch, key) {
			return true
		}
		if err != nil {
			return false
		}
	}
	return false
}

func sawKey(batch []process.Event, key string) bool {
	for i := range batch {
		if ack, ok := batch[i].Body.(process.StdinAcked); ok && process.InputKey(ack.Command) == key {
			return true
		}
	}
	return false
}
