package backendai

import (
	"context"
	"fmt"
	"time"

	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/backendai/run"
)

// A request that continues a run has no position: the run's client gets what it has not received
// yet. How far that is, is stored with the cursors of polled watches, which have the same problem:
// the position before a response and the one after it are stored before the response is sent, and
// its outcome when the client's machine has acknowledged it. A response whose outcome is unknown,
// because a gateway died or the client disconnected, is sent again.

// place is the stored position of a run.
type place struct {
	now    run.Position
	cursor catalog.WatchCursor
}

// position returns where the next result of a run begins.
func (h *Handler) position(ctx context.Context, id process.ID) (place, error) {
	at, err := h.cfg.Operations.WatchCursor(ctx, id)
	if err != nil || at.Rev == 0 {
		return place{cursor: at}, err
	}
	from, to := run.Position{After: at.From}, run.Position{After: at.To}
	if _, err := fmt.Sscanf(at.Key, offsets, &from.Offset, &to.Offset); err != nil {
		return place{cursor: at}, err
	}
	if at.Given {
		return place{to, at}, nil
	}
	return place{from, at}, nil
}

// offsets is the form of the offsets of both positions in the key of a cursor.
const offsets = "%d-%d"

// outcomeTimeout limits the time to store the outcome of a response.
const outcomeTimeout = 5 * time.Second

// deliver stores that a response up to a position is about to be sent, and returns the function
// that stores its outcome.
func (h *Handler) deliver(ctx context.Context, id process.ID, from place, to run.Position) (func(whole bool), error) {
	at := catalog.WatchCursor{
		From: from.now.After, To: to.After, Key: fmt.Sprintf(offsets, from.now.Offset, to.Offset), Rev: from.cursor.Rev,
	}
	rev, err := h.cfg.Operations.PutWatchCursor(ctx, id, at)
	if err != nil {
		return nil, err
	}
	return func(whole bool) {
		if !whole {
			return
		}
		at.Rev, at.Given = rev, true
		ctx, cancel := context.WithTimeout(context.Background(), outcomeTimeout) // the request has ended
		defer cancel()
		if _, err := h.cfg.Operations.PutWatchCursor(ctx, id, at); err != nil {
			h.cfg.Slog.Warn("store position failed", "process", id, "err", err)
		}
	}, nil
}
