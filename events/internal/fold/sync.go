package fold

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/events/internal/store"
)

// Sync waits until everything stored before the call is in the view. It retries through
// outages until ctx ends. It returns ctx's error, or kind.Unavailable if the log was closed
// or could not be reached until then.
func (p *Progress) Sync(ctx context.Context) error {
	for try := 0; ; {
		want, err := p.ends(ctx)
		if err == nil {
			return p.Wait(ctx, func() bool { return p.reached(want) })
		}
		if p.conn.Closed() {
			return err
		}
		if !p.conn.Backoff(ctx, &try) {
			return store.Unavailable("sync", "", fmt.Errorf("%w: %w", ctx.Err(), err))
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
func (p *Progress) ends(ctx context.Context) ([]uint64, error) {
	p.mu.Lock()
	k := p.nextBarrier
	if k == nil {
		k = &syncBarrier{done: make(chan struct{}), ends: make([]uint64, len(p.sources))}
		p.nextBarrier = k
		go p.runBarrier(k)
	}
	p.mu.Unlock()
	select {
	case <-k.done:
		return k.ends, k.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// runBarrier waits for its turn and queries the ends, as long as a request may take.
func (p *Progress) runBarrier(k *syncBarrier) {
	p.barrierMu.Lock()
	defer p.barrierMu.Unlock()
	p.mu.Lock()
	p.nextBarrier = nil
	p.mu.Unlock()
	g, ctx := errgroup.WithContext(context.Background())
	for i, s := range p.sources {
		g.Go(func() (err error) {
			k.ends[i], err = p.conn.LastSeq(ctx, s.Stream)
			return err
		})
	}
	k.err = g.Wait()
	close(k.done)
}

// reached reports whether all messages up to the given ones are applied. The view is
// locked.
func (p *Progress) reached(ends []uint64) bool {
	for i, s := range p.sources {
		if p.applied[s.Stream] < ends[i] {
			return false
		}
	}
	return true
}
