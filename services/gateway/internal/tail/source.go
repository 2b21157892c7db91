package tail

import (
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/recovery"
)

// Tailer is the part of the log that the surface uses, implemented by [catalog.View].
type Tailer interface {
	Tail(ctx context.Context, f catalog.TailFilter, fn func(catalog.TailEvent) error) error
}

var _ Tailer = (*catalog.View)(nil)

// carried wraps an event of any record as an event of a process, which is what streams
// transport. It is never Finished: a tail continues after the end of a process.
type carried struct {
	process.Lost // makes it a process.Body
	event        catalog.TailEvent
}

// source turns a Tail, which pushes, into a stream.Source. Closing it ends the Tail and
// waits for it.
type source struct {
	cancel context.CancelFunc
	found  chan catalog.TailEvent // closed when the Tail has ended
	err    error                  // why it ended; valid once found is closed
	count  process.Seq
}

// maxBatch is the maximum size of a batch, and of what a Tail reads ahead.
const maxBatch = 256

// newSource starts a Tail of the events for which wanted returns true.
func newSource(t Tailer, f catalog.TailFilter, log *slog.Logger, wanted func(*catalog.TailEvent) bool) *source {
	// The stream outlives its request: its lifetime begins here.
	ctx, cancel := context.WithCancel(context.Background())
	s := &source{cancel: cancel, found: make(chan catalog.TailEvent, maxBatch)}
	go func() {
		defer close(s.found)
		s.err = recovery.Do(log, "tail", func() error {
			return t.Tail(ctx, f, func(e catalog.TailEvent) error {
				if !wanted(&e) {
					return nil
				}
				select {
				case s.found <- e:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			})
		})
	}()
	return s
}

// After returns the number of events returned.
func (s *source) After() process.Seq { return s.count }

// Close ends the Tail and waits for it.
func (s *source) Close() {
	s.cancel()
	for range s.found {
	}
}

// Next waits for events and returns those that are available.
func (s *source) Next(ctx context.Context, idle time.Duration) ([]process.Event, error) {
	var quiet <-chan time.Time
	if idle > 0 {
		t := time.NewTimer(idle)
		defer t.Stop()
		quiet = t.C
	}
	select {
	case e, ok := <-s.found:
		if !ok {
			return nil, s.end()
		}
		return s.coalesce(e), nil
	case <-quiet:
		return nil, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *source) end() error {
	if s.err == nil {
		return io.EOF
	}
	return s.err
}

// coalesce adds the events that are already available to e.
func (s *source) coalesce(e catalog.TailEvent) []process.Event {
	batch := []process.Event{s.carry(e)}
	for len(batch) < maxBatch {
		select {
		case e, ok := <-s.found:
			if !ok {
				return batch
			}
			batch = append(batch, s.carry(e))
		default:
			return batch
		}
	}
	return batch
}

func (s *source) carry(e catalog.TailEvent) process.Event {
	s.count++
	return process.Event{Seq: s.count, Time: timeOf(&e), Body: carried{event: e}}
}

func timeOf(e *catalog.TailEvent) time.Time {
	switch {
	case e.Process != nil:
		return e.Process.Time
	case e.Change != nil:
		return e.Change.Time
	}
	return time.Time{}
}

func typeOf(e *catalog.TailEvent) string {
	switch {
	case e.Process != nil:
		return e.Process.Type()
	case e.Change != nil:
		return e.Change.Type()
	}
	return "unknown"
}
