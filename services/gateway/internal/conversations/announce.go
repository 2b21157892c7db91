package conversations

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/millrace/millrace/events/conversation"
	"github.com/millrace/millrace/events/sandbox"
)

// deliverTimeout is how long a cancel waits for the gateway of the client.
const deliverTimeout = 2 * time.Second

// Cancel asks the client of the conversation in a sandbox, at whichever gateway, to stop. It reports
// whether the client was sent that: it is false for a sandbox without a client.
func (cs *Conversations) Cancel(ctx context.Context, id sandbox.ID, reason string) (delivered bool, err error) {
	if err := cs.cfg.Store.Sync(ctx); err != nil {
		return false, err
	}
	c, ok := cs.cfg.Store.Of(id)
	if !ok || c.Phase != conversation.Serving || c.Sandbox != id {
		return false, nil
	}
	if err := cs.cfg.Keeper.Sync(ctx); err != nil {
		return false, err
	}
	if !cs.cfg.Keeper.Attached(c.Owner, attachmentID(&c)) {
		return false, nil
	}
	notice := rand.Text()
	c, err = cs.cfg.Store.Change(ctx, c.ID, func(now *conversation.State) (conversation.Body, error) {
		if now.Sandbox != id || now.Phase != conversation.Serving {
			return nil, nil
		}
		return conversation.Announced{ID: notice, Reason: reason}, nil
	})
	if err != nil || c.Notice.ID != notice {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, deliverTimeout)
	defer cancel()
	c, err = cs.cfg.Store.Await(ctx, c.ID, func(now *conversation.State) bool {
		return now.Notice.ID != notice || now.Notice.Delivered
	})
	return err == nil && c.Notice.ID == notice && c.Notice.Delivered, nil
}
