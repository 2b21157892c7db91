package procs

import (
	"context"
	"time"

	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/core"
)

const (
	// settleTimeout is how long another gateway's answer may be on its way: an answer that is
	// not confirmed by then counts as lost.
	settleTimeout = time.Second
	settlePoll    = 10 * time.Millisecond
)

// WatchCursor returns how far a watch's events were delivered. While another answer is on its
// way it waits for the outcome; the answer of a gateway that died counts as not delivered.
// The caller has found the process.
func (ps *Procs) WatchCursor(ctx context.Context, id process.ID) (catalog.WatchCursor, error) {
	ctx, cancel := context.WithTimeout(ctx, ps.core.CallTimeout)
	defer cancel()
	late := time.NewTimer(settleTimeout)
	defer late.Stop()
	tick := time.NewTicker(settlePoll)
	defer tick.Stop()
	for {
		at, err := ps.core.Log.WatchCursor(ctx, id)
		if err != nil || at.Given || at.Rev == 0 {
			return at, core.LogError("read watch cursor", string(id), err)
		}
		select {
		case <-tick.C:
		case <-late.C:
			return at, nil
		case <-ctx.Done():
			return at, ctx.Err()
		}
	}
}

// PutWatchCursor stores a watch's cursor and returns its revision; Conflict if another gateway
// wrote first.
func (ps *Procs) PutWatchCursor(ctx context.Context, id process.ID, at catalog.WatchCursor) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, ps.core.CallTimeout)
	defer cancel()
	rev, err := ps.core.Log.PutWatchCursor(ctx, id, at)
	return rev, core.LogError("store watch cursor", string(id), err)
}
