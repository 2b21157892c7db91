package run

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
)

// Source is the record of a run.
type Source interface {
	Next(ctx context.Context, idle time.Duration) ([]process.Event, error)
	Close()
}

// Follower reads the results of a run. It belongs to one goroutine.
type Follower struct {
	*Collector
	src Source
}

// Follow returns a follower of a record that begins after the position.
func Follow(src Source, at Position) *Follower { return &Follower{NewCollector(at), src} }

// Close releases the record.
func (f *Follower) Close() error {
	f.src.Close()
	return nil
}

// Next returns the next result: when the status changes, and otherwise after wait.
func (f *Follower) Next(ctx context.Context, wait time.Duration) (Result, error) {
	until := time.Now().Add(wait)
	for {
		if r, ok := f.Take(); ok {
			return r, nil
		}
		left := time.Until(until)
		if left <= 0 {
			return f.Flush(), nil
		}
		batch, err := f.src.Next(ctx, left)
		for i := range batch {
			f.Add(batch[i])
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			if r, ok := f.Take(); ok {
				return r, nil
			}
			return Result{}, kind.New(kind.Gone, "read run", "", "the record of the run is incomplete")
		default:
			return Result{}, err
		}
	}
}
