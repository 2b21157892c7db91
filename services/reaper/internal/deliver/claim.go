package deliver

import (
	"context"
	"time"

	"github.com/millrace/millrace/events/webhook"
)

// claim is the right to deliver what follows a cursor, which storing the cursor renews.
type claim struct {
	d      *deliverer
	tenant string
	id     webhook.ID
	cursor webhook.Cursor // as stored, with later changes
	dirty  bool           // the cursor has changed since
	stored time.Time
	lost   *time.Timer // cancels the context of the claim
}

// take stores a claim on what follows a cursor. It returns a context that ends when the claim is lost, and
// false if another deliverer has it.
func (c *claim) take(ctx context.Context, cursor webhook.Cursor) (context.Context, context.CancelFunc, bool) {
	ctx, lose := context.WithCancel(ctx)
	c.lost = time.AfterFunc(holdFor, lose)
	c.cursor = cursor
	c.cursor.Holder = c.d.id
	end := func() {
		c.lost.Stop()
		lose()
	}
	return ctx, end, c.store(ctx)
}

// storeDue reports whether the cursor must be stored.
func (c *claim) storeDue() bool {
	age := time.Since(c.stored)
	return age >= renewEvery || c.dirty && age >= storeEvery
}

// untilDue returns how long the cursor need not be stored.
func (c *claim) untilDue() time.Duration {
	if c.dirty {
		return max(0, storeEvery-time.Since(c.stored))
	}
	return max(0, renewEvery-time.Since(c.stored))
}

// store stores the cursor, and with it the claim, and reports whether the claim is ours.
func (c *claim) store(ctx context.Context) bool {
	began := time.Now()
	rev, err := c.d.cfg.Log.PutCursor(ctx, c.tenant, c.id, &c.cursor)
	if err != nil {
		return false
	}
	c.lost.Reset(holdFor - time.Since(began))
	c.cursor.Rev, c.stored, c.dirty = rev, began, false
	return true
}

// release stores the position without a claim, even if ctx has ended. It returns when the view has it, so
// that the next one starts there.
func (c *claim) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	c.cursor.Holder = ""
	if !c.store(ctx) {
		return
	}
	if err := c.d.cfg.View.Sync(ctx); err != nil {
		c.d.cfg.Slog.Warn("read delivery cursor failed", "webhook", c.id, "err", err)
	}
}
