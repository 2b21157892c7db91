package conversations

import (
	"context"
	"sync"
	"time"

	"github.com/millrace/millrace/events/conversation"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/core"
)

// saveTimeout limits a snapshot of a sandbox's files.
const saveTimeout = 30 * time.Second

// save stores the files of a sandbox of a conversation, which a resume restores. An error is logged: the
// resume restores what was saved before.
func (cs *Conversations) save(ctx context.Context, c *conversation.State, sbx sandbox.ID) {
	var watch sync.WaitGroup
	defer watch.Wait()
	ctx, cancel := context.WithTimeout(ctx, saveTimeout)
	defer cancel()
	watch.Go(func() { cs.watchHost(ctx, sbx, cancel) })
	if err := cs.cfg.Files.Save(ctx, core.Principal{Tenant: c.Owner}, c.ID, sbx); err != nil && !kind.Is(err, kind.NotFound) {
		cs.cfg.Slog.Warn("save files of a session failed", "session", c.ID, "sandbox", sbx, "err", err)
	}
}

// watchHost calls gone when the lease of a sandbox's host has ended, unless ctx ends first. A dead host never
// answers, and a resume would wait for it until [saveTimeout].
func (cs *Conversations) watchHost(ctx context.Context, sbx sandbox.ID, gone func()) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for cs.cfg.Sandboxes.Reachable(sbx) {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
	gone()
}

// restored returns the request for a sandbox that starts with the files of a conversation. Without any
// it starts fresh.
func (cs *Conversations) restored(c *conversation.State, req sandbox.Requested) sandbox.Requested {
	if c.Generation < 2 {
		return req
	}
	out, ok := cs.cfg.Files.Restore(core.Principal{Tenant: c.Owner}, c.ID, req)
	if !ok {
		cs.cfg.Slog.Warn("resume session without its files: none were saved", "session", c.ID)
	}
	return out
}
