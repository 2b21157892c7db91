package fold

import (
	"context"
	"fmt"
	"sync"

	"github.com/millrace/millrace/events/internal/store"
)

// Sync waits until everything that was stored in the given streams (none given: in all) before
// the call is in the view. It waits for Start, and retries through outages until ctx ends. It returns ctx's error, or
// kind.Unavailable if the log was closed or could not be reached until then.
func (p *Progress) Sync(ctx context.Context, of ...string) error {
	select {
	case <-p.started:
	case <-ctx.Done():
		return ctx.Err()
	}
	if len(of) == 0 {
		for _, s := range p.sources {
			of = append(of, s.Stream)
		}
	}
	for try := 0; ; {
		want, err := p.ends(ctx, of)
		if err == nil {
			return p.Wait(ctx, func() bool { return p.reached(of, want) })
		}
		if p.conn.Closed() {
			return err
		}
		if !p.conn.Backoff(ctx, &try) {
			return store.Unavailable("sync", "", fmt.Errorf("%w: %w", ctx.Err(), err))
		}
	}
}

// syncBarrier is the queries for the end of one stream. All callers that arrived before a query
// began share it.
type syncBarrier struct {
	next    *endQuery  // requested but not begun; nil: none requested; guarded by the lock of the view
	running sync.Mutex // held by the running query; taken before the lock of the view
}

// endQuery is one query for the end of a stream.
type endQuery struct {
	done chan struct{} // closed when the fields below are set
	end  uint64
	err  error
}

// ends returns the last sequences of streams, by queries that begin after the call. Callers
// that arrive during a query share the next one: each asks the stream's leader. A process that is
// the only one connected to the servers knows most without a query.
func (p *Progress) ends(ctx context.Context, of []string) ([]uint64, error) {
	queries, ends := make([]*endQuery, len(of)), make([]uint64, len(of))
	p.mu.Lock()
	for i, stream := range of {
		var known bool
		if ends[i], known = p.conn.Ends.Known(stream); known {
			continue
		}
		b := p.barriers[stream]
		if b.next == nil {
			b.next = &endQuery{done: make(chan struct{})}
			go p.query(stream, b, b.next)
		}
		queries[i] = b.next
	}
	p.mu.Unlock()
	for i, q := range queries {
		if q == nil {
			continue
		}
		select {
		case <-q.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if q.err != nil {
			return nil, q.err
		}
		ends[i] = q.end
	}
	return ends, nil
}

// query waits for its turn and asks for the end of a stream, as long as a request may take.
func (p *Progress) query(stream string, b *syncBarrier, q *endQuery) {
	b.running.Lock()
	defer b.running.Unlock()
	p.mu.Lock()
	b.next = nil
	p.mu.Unlock()
	q.end, q.err = p.conn.LastSeq(context.Background(), stream)
	close(q.done)
}

// reached reports whether all messages of streams up to the given ones are applied. The view is
// locked.
func (p *Progress) reached(of []string, ends []uint64) bool {
	for i, stream := range of {
		if p.applied[stream] < ends[i] {
			return false
		}
	}
	return true
}
