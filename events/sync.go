package events

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
)

// Sync waits until everything stored before the call is in the view. It retries through
// outages until ctx ends. It returns ctx's error, or kind.Unavailable if the log was closed
// or could not be reached until then.
func (v *View) Sync(ctx context.Context) error {
	for try := 0; ; {
		want, err := v.ends(ctx)
		if err == nil {
			return v.wait(ctx, func() bool { return v.reached(want) })
		}
		if v.l.nc.IsClosed() {
			return err
		}
		if !v.l.backoff(ctx, &try) {
			return unavailable("sync", "", fmt.Errorf("%w: %w", ctx.Err(), err))
		}
	}
}

// syncBarrier is one query for the ends of all streams, shared by all callers that arrived before
// it began.
type syncBarrier struct {
	done chan struct{}
	ends []uint64
	err  error
}

// ends returns the last sequences of the streams that a view is folded from, by a query
// that begins after the call. Callers that arrive during a query share the next one: each
// asks every leader.
func (v *View) ends(ctx context.Context) ([]uint64, error) {
	v.mu.Lock()
	k := v.nextBarrier
	if k == nil {
		k = &syncBarrier{done: make(chan struct{}), ends: make([]uint64, len(folds))}
		v.nextBarrier = k
		go v.runBarrier(k)
	}
	v.mu.Unlock()
	select {
	case <-k.done:
		return k.ends, k.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// runBarrier waits for its turn and queries the ends, as long as a request may take.
func (v *View) runBarrier(k *syncBarrier) {
	v.barrierMu.Lock()
	defer v.barrierMu.Unlock()
	v.mu.Lock()
	v.nextBarrier = nil
	v.mu.Unlock()
	g, ctx := errgroup.WithContext(context.Background())
	for i, f := range folds {
		g.Go(func() (err error) {
			k.ends[i], err = v.l.lastSeq(ctx, f.stream)
			return err
		})
	}
	k.err = g.Wait()
	close(k.done)
}

// reached reports whether all messages up to the given ones are applied. The view is
// locked.
func (v *View) reached(ends []uint64) bool {
	for i, f := range folds {
		if v.applied[f.stream] < ends[i] {
			return false
		}
	}
	return true
}
