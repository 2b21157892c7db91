package conversations

import (
	"context"
	"sync"
	"time"

	"github.com/millrace/millrace/events/conversation"
	"github.com/millrace/millrace/events/kind"
)

const (
	interval      = time.Second // between two searches for conversations whose sandbox has ended
	sweepInterval = 10 * time.Minute
	// abandoned is how long the start of a gateway that died waits for a resume to take it over.
	abandoned = time.Minute
	// forgotten is how long a sandbox may be missing in the view: records are kept for much longer.
	forgotten = 24 * time.Hour
)

// Start keeps the view of conversations up to date until ctx ends. It is called once, before the other methods.
func (cs *Conversations) Start(ctx context.Context) error { return cs.cfg.Store.Start(ctx) }

// Run ends conversations whose sandbox has ended, saves the files of the others, and removes old ones, until
// ctx ends.
func (cs *Conversations) Run(ctx context.Context) error {
	var saving sync.WaitGroup
	saving.Go(func() { cs.saveAll(ctx) })
	defer saving.Wait()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	swept := time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		cs.endOver(ctx, time.Now())
		if time.Since(swept) < sweepInterval {
			continue
		}
		swept = time.Now()
		if err := cs.cfg.Store.Sweep(ctx, swept); err != nil && ctx.Err() == nil {
			cs.cfg.Slog.Warn("sweep conversations failed", "err", err)
		}
		err := cs.cfg.Store.Sync(ctx)
		if err == nil {
			err = cs.cfg.Files.Forget(ctx, func(id conversation.ID) bool {
				_, ok := cs.cfg.Store.Get(id)
				return ok
			})
		}
		if err != nil && ctx.Err() == nil {
			cs.cfg.Slog.Warn("remove files of sessions failed", "err", err)
		}
	}
}

// endOver ends the conversations whose sandbox has ended.
func (cs *Conversations) endOver(ctx context.Context, now time.Time) {
	for _, c := range cs.cfg.Store.List(func(c *conversation.State) bool { return c.Phase != conversation.Over }) {
		status, over := cs.over(&c, now)
		if !over {
			continue
		}
		if c.Phase == conversation.Starting {
			cs.cfg.Sandboxes.Abandon(ctx, c.Sandbox)
		}
		if _, err := cs.cfg.Store.Append(ctx, &c, conversation.Ended{Status: status}); err != nil && !kind.Is(err, kind.Conflict) && ctx.Err() == nil {
			cs.cfg.Slog.Warn("end conversation failed", "session", c.ID, "err", err)
		}
	}
}

// over reports whether a conversation is over that is not stored as such, and with which status.
func (cs *Conversations) over(c *conversation.State, now time.Time) (conversation.Status, bool) {
	st, ok := cs.cfg.Sandboxes.State(c.Sandbox)
	switch {
	case c.Phase == conversation.Starting:
		return conversation.Failed, now.Sub(c.Claim.At) > abandoned && cs.stale(c, now)
	case !ok:
		return conversation.Unknown, now.Sub(c.Served) > forgotten
	}
	return ended(&st), st.Over()
}
