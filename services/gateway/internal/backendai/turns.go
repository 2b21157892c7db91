package backendai

import (
	"context"
	"sync"
	"time"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/stream"
)

// turns orders the starts of runs: those of one session start one after the other, first in, first
// out. Its methods may be called concurrently.
type turns struct {
	mu   sync.Mutex
	last map[sandbox.ID]chan struct{} // closed when the newest turn of a session has ended
}

func newTurns() *turns { return &turns{last: make(map[sandbox.ID]chan struct{})} }

// take waits for the turns of a session that were taken before. The caller calls end once or more.
func (t *turns) take(ctx context.Context, id sandbox.ID) (end func(), err error) {
	mine := make(chan struct{})
	t.mu.Lock()
	before := t.last[id]
	t.last[id] = mine
	t.mu.Unlock()
	done := sync.OnceFunc(func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		close(mine)
		if t.last[id] == mine {
			delete(t.last, id)
		}
	})
	if before == nil {
		return done, nil
	}
	select {
	case <-before:
		return done, nil
	case <-ctx.Done():
		go func() { // those behind wait for those before
			<-before
			done()
		}()
		return nil, context.Cause(ctx)
	}
}

// queued is the record of a run whose turn ends when the run has its place in the queue of its
// kernel: it prints nothing before.
type queued struct {
	stream.Source
	end func()
}

// Next implements [stream.Source].
func (q *queued) Next(ctx context.Context, idle time.Duration) ([]process.Event, error) {
	batch, err := q.Source.Next(ctx, idle)
	for i := range batch {
		if _, ok := batch[i].Body.(process.Wrote); ok {
			q.end()
		}
	}
	if err != nil {
		q.end()
	}
	return batch, err
}

// Close implements [stream.Source].
func (q *queued) Close() {
	q.end()
	q.Source.Close()
}
