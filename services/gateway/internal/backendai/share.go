package backendai

import (
	"context"
	"crypto/rand"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/events/tally"
	"github.com/millrace/millrace/services/gateway/internal/rate"
)

const (
	shareEvery   = time.Second
	shareTimeout = 5 * time.Second
)

// Tallies are the counts that gateways share, implemented by [tally.Store].
type Tallies interface {
	Put(ctx context.Context, c *tally.Counts) error
	Follow(ctx context.Context, fn func(*tally.Counts)) error
}

// sharer passes the counts of requests on.
type sharer struct{ *Handler }

// share passes the counts of requests on to other gateways, and adds theirs, until ctx ends. No
// request waits for it.
func (h sharer) share(ctx context.Context) error {
	run := rand.Text()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		err := h.cfg.Tallies.Follow(ctx, func(c *tally.Counts) {
			if c.Run != run {
				h.counts.Merge(c.Run, rate.Bucket{Number: c.Period, ByKey: c.ByKey}, time.Now())
			}
		})
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the gateway ends
		}
		return err
	})
	g.Go(func() error {
		t := time.NewTicker(shareEvery)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-t.C:
				h.put(ctx, run)
			}
		}
	})
	return g.Wait()
}

// put stores the counts that have changed. What cannot be stored is stored with the next ones.
func (h sharer) put(ctx context.Context, run string) {
	ctx, cancel := context.WithTimeout(ctx, shareTimeout)
	defer cancel()
	for _, b := range h.counts.Changed() {
		if err := h.cfg.Tallies.Put(ctx, &tally.Counts{Run: run, Period: b.Number, ByKey: b.ByKey}); err != nil {
			h.counts.Again(b.Number)
			if ctx.Err() == nil {
				h.cfg.Slog.Warn("share counts failed", "err", err)
			}
		}
	}
}
