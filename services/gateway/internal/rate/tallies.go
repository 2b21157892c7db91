package rate

import (
	"context"
	"crypto/rand"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/events/tally"
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

// Share passes the counts on to other gateways, and adds theirs, until ctx ends.
func (c *Counts) Share(ctx context.Context, tallies Tallies, log *slog.Logger) error {
	run := rand.Text()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		err := tallies.Follow(ctx, func(t *tally.Counts) {
			if t.Run != run {
				c.Merge(t.Run, Bucket{Number: t.Period, ByKey: t.ByKey}, time.Now())
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
				c.put(ctx, run, tallies, log)
			}
		}
	})
	return g.Wait()
}

// put stores the counts that have changed. What cannot be stored is stored with the next ones.
func (c *Counts) put(ctx context.Context, run string, tallies Tallies, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(ctx, shareTimeout)
	defer cancel()
	for _, b := range c.Changed() {
		if err := tallies.Put(ctx, &tally.Counts{Run: run, Period: b.Number, ByKey: b.ByKey}); err != nil {
			c.Again(b.Number)
			if ctx.Err() == nil {
				log.Warn("share counts failed", "err", err)
			}
		}
	}
}
