package core

import (
	"context"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/process"
)

const (
	// settlePatience is how long an answer that another gateway gave may be on its
	// way: one that is not settled by then counts as lost.
	settlePatience = time.Second
	settleLook     = 10 * time.Millisecond
)

// WatchPlace gives how far a watch's events were given. While an answer is on its
// way it waits for what becomes of it; one of a gateway that died comes out as not
// given. The caller has found the process.
func (c *Core) WatchPlace(ctx context.Context, id process.ID) (events.WatchPlace, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.CallTimeout)
	defer cancel()
	late := time.NewTimer(settlePatience)
	defer late.Stop()
	look := time.NewTicker(settleLook)
	defer look.Stop()
	for {
		at, err := c.log.WatchPlace(ctx, id)
		if err != nil || at.Given || at.Rev == 0 {
			return at, logError("read place", string(id), err)
		}
		select {
		case <-look.C:
		case <-late.C:
			return at, nil
		case <-ctx.Done():
			return at, ctx.Err()
		}
	}
}

// PutWatchPlace stores a watch's place and gives its rev; Conflict if somebody else
// wrote first.
func (c *Core) PutWatchPlace(ctx context.Context, id process.ID, at events.WatchPlace) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.CallTimeout)
	defer cancel()
	rev, err := c.log.PutWatchPlace(ctx, id, at)
	return rev, logError("put place", string(id), err)
}
