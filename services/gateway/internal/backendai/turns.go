package backendai

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/recovery"
	"github.com/millrace/millrace/services/gateway/internal/stream"
)

// turns orders the starts of runs: those of one session start one after the other, first in, first
// out. Its methods may be called concurrently.
type turns struct {
	mu   sync.Mutex
	last map[sandbox.ID]chan struct{} // closed when the newest turn of a session has ended
}

func newTurns() *turns { return &turns{last: make(map[sandbox.ID]chan struct{})} }

// turnWait limits how long a run waits for those before it. After it the order is best effort: a
// kernel that cannot be reached delays the runs behind once, not once for each run.
const turnWait = 10 * time.Second

// take waits for the turns of a session that were taken before, but at most turnWait. The caller
// calls end once or more.
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
	limit := time.NewTimer(turnWait)
	defer limit.Stop()
	select {
	case <-before:
		return done, nil
	case <-limit.C:
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
	end  func() // nil if the turn has ended
	slog *slog.Logger
}

// Next implements [stream.Source].
func (q *queued) Next(ctx context.Context, idle time.Duration) ([]process.Event, error) {
	batch, err := q.Source.Next(ctx, idle)
	for i := range batch {
		switch batch[i].Body.(type) {
		case process.Wrote, process.Omitted, process.Exited, process.Finished, process.Lost, process.Failed:
			q.endTurn()
		default:
			// The run has no place yet.
		}
	}
	if err != nil {
		q.endTurn()
	}
	return batch, err
}

func (q *queued) endTurn() {
	if q.end != nil {
		q.end()
		q.end = nil
	}
}

// Close implements [stream.Source]. If the run has no place yet, its record is read on until it has
// one, for turnWait at most: a long poll ends before a new session has started its kernel.
func (q *queued) Close() {
	if q.end == nil {
		q.Source.Close()
		return
	}
	go recovery.Do(q.slog, "end turn", func() error { //nolint:errcheck // the order is then best effort
		defer q.Source.Close()
		defer q.endTurn()
		ctx, cancel := context.WithTimeout(context.Background(), turnWait) // the request has ended
		defer cancel()
		for q.end != nil && ctx.Err() == nil {
			if _, err := q.Next(ctx, turnWait); err != nil {
				return err
			}
		}
		return nil
	})
}
