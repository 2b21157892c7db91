package core

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/millrace/millrace/events"
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
	if !kind.Is(err, kind.NotFound) {
		return err
	}
	// The input may be what it ended of.
	taken, unseen := c.taken(ctx, p, id, keyOf(max(0, (len(data)-1)/maxInput)))
	switch {
	case taken:
		return nil
	case errors.Is(unseen, context.DeadlineExceeded), kind.Is(unseen, kind.Unavailable):
		return kind.Wrap(kind.Unavailable, "send input", string(id), unseen)
	}
	return err
}

// How many of a record's last events are searched for what became of an input that the
// process may have ended of: it mostly is among the last ones, and what the process printed
// at its end comes behind.
const (
	lookNear = 256
	lookBack = 1 << 14
)

// taken reports whether a process that has ended took the input of a key before, as far as
// its record tells. An error says that it was not read so far back.
func (c *Core) taken(ctx context.Context, p Principal, id process.ID, key string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.CallTimeout)
	defer cancel()
	tip, err := c.Tip(ctx, p, id)
	if err != nil {
		return false, err
	}
	end := tip.Last
	for _, back := range [...]process.Seq{lookNear, lookBack} {
		from := tip.Last - min(tip.Last, back)
		if taken, err := c.tookBetween(ctx, p, id, key, from, end); taken || err != nil {
			return taken, err
		}
		end = from
	}
	return false, nil
}

// tookBetween searches the events after a place and up to another one. Those that fell out
// of retention are passed over.
func (c *Core) tookBetween(ctx context.Context, p Principal, id process.ID, key string, after, end process.Seq) (bool, error) {
	for after < end {
		r, err := c.Read(ctx, p, id, after)
		for err == nil && r.After() < end {
			var batch []process.Event
			if batch, err = r.Next(ctx, time.Second); sawKey(batch, key) {
				r.Close()
				return true, nil
			}
		}
		first, gone := events.FirstSeq(err)
		if r != nil {
			after = r.After()
			r.Close()
		}
		switch {
		case err == nil || errors.Is(err, io.EOF):
			return false, nil
		case !gone || first <= after+1:
			return false, err
		}
		after = first - 1
	}
	return false, nil
}

func sawKey(batch []process.Event, key string) bool {
	for i := range batch {
		if ack, ok := batch[i].Body.(process.StdinAcked); ok && process.InputKey(ack.Command) == key {
			return true
		}
	}
	return false
}
