package tail

import (
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/recovery"
)

// Tailer is what the surface needs of the log: an *events.View.
type Tailer interface {
	Tail(ctx context.Context, f events.TailFilter, fn func(events.TailEvent) error) error
}

var _ Tailer = (*events.View)(nil)

// carried is an event of any record in the shape of one of a process, as streams
// carry them. It is never Finished: a tail goes on after a process.
type carried struct {
	process.Lost // only so that it is a process.Body
	event        events.TailEvent
}

// source turns a Tail, which pushes, into a stream.Source. Closing it ends the
// Tail and waits for it.
type source struct {
	cancel context.CancelFunc
	found  chan events.TailEvent // closed when the Tail is over
	err    error                 // why; to be read after found is closed
	given  process.Seq
}

// atHand bounds a batch, and how far a Tail runs ahead of its reader.
const atHand = 256

// newSource begins a Tail of what wanted says yes to.
func newSource(t Tailer, f events.TailFilter, log *slog.Logger, wanted func(*events.TailEvent) bool) *source {
	// The stream outlives the request that asked for it: its lifetime begins here.
	ctx, cancel := context.WithCancel(context.Background())
	s := &source{cancel: cancel, found: make(chan events.TailEvent, atHand)}
	go func() {
		defer close(s.found)
		s.err = recovery.Do(log, "tail", func() error {
			return t.Tail(ctx, f, func(e events.TailEvent) error {
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

// After counts the events given.
func (s *source) After() process.Seq { return s.given }

// Close ends the Tail and waits for it.
func (s *source) Close() {
	s.cancel()
	for range s.found { //nolint:revive // what it still had is nobody's
	}
}

// Next waits for the next events and gives what is at hand.
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
		return s.gather(e), nil
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

// gather adds to e what else is there already.
func (s *source) gather(e events.TailEvent) []process.Event {
	batch := []process.Event{s.carry(e)}
	for len(batch) < atHand {
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

func (s *source) carry(e events.TailEvent) process.Event {
	s.given++
	return process.Event{Seq: s.given, Time: timeOf(&e), Body: carried{event: e}}
}

func timeOf(e *events.TailEvent) time.Time {
	switch {
	case e.Process != nil:
		return e.Process.Time
	case e.Change != nil:
		return e.Change.Time
	}
	return time.Time{}
}

func typeOf(e *events.TailEvent) string {
	switch {
	case e.Process != nil:
		return e.Process.Type()
	case e.Change != nil:
		return e.Change.Type()
	}
	return "unknown"
}
