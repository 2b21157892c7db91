package procs

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/record"
	"github.com/millrace/millrace/services/gateway/internal/core"
)

// SendInputOnce is SendInput that the client may retry with the same key, at any gateway,
// while the outcome is unknown: the process receives the data once. The host remembers the
// process's last 256 keys. It also returns Conflict if the key was used with other data, and
// Unavailable if the client should retry.
func (ps *Procs) SendInputOnce(ctx context.Context, p core.Principal, id process.ID, key string, data []byte, eof bool) error {
	keyOf := func(n int) string {
		sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%d", id, key, n))
		return fmt.Sprintf("input.%x", sum[:16])
	}
	err := ps.sendInput(ctx, p, id, data, eof, func(n int) string {
		return process.InputAttempt(keyOf(n), ulid.Make().String())
	})
	if !kind.Is(err, kind.NotFound) {
		return err
	}
	// The process may have ended because of this very input.
	taken, unseen := ps.tookInput(ctx, p, id, keyOf(max(0, (len(data)-1)/maxInput)))
	switch {
	case taken:
		return nil
	case errors.Is(unseen, context.DeadlineExceeded), kind.Is(unseen, kind.Unavailable):
		return kind.Wrap(kind.Unavailable, "send input", string(id), unseen)
	}
	return err
}

// How many of a record's last events are searched for the acknowledgement of an input that
// may have ended the process: it is mostly among the last ones, followed by the output that
// the process printed at its end.
const (
	searchNear = 256
	searchFar  = 1 << 14
)

// tookInput reports whether a process that has ended took the input with a key, as far as its
// record shows. An error means that the record could not be read that far back.
func (ps *Procs) tookInput(ctx context.Context, p core.Principal, id process.ID, key string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, ps.core.CallTimeout)
	defer cancel()
	tip, err := ps.Tail(ctx, p, id)
	if err != nil {
		return false, err
	}
	end := tip.Last
	for _, back := range [...]process.Seq{searchNear, searchFar} {
		from := tip.Last - min(tip.Last, back)
		if taken, err := ps.searchAcks(ctx, p, id, key, from, end); taken || err != nil {
			return taken, err
		}
		end = from
	}
	return false, nil
}

// searchAcks searches the events after seq after, up to seq end. It skips those that fell
// out of retention.
func (ps *Procs) searchAcks(ctx context.Context, p core.Principal, id process.ID, key string, after, end process.Seq) (bool, error) {
	for after < end {
		r, err := ps.Read(ctx, p, id, after)
		for err == nil && r.After() < end {
			var batch []process.Event
			if batch, err = r.Next(ctx, time.Second); hasAck(batch, key) {
				r.Close()
				return true, nil
			}
		}
		first, gone := record.FirstSeq(err)
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

func hasAck(batch []process.Event, key string) bool {
	for i := range batch {
		if ack, ok := batch[i].Body.(process.StdinAcked); ok && process.InputKey(ack.Command) == key {
			return true
		}
	}
	return false
}
