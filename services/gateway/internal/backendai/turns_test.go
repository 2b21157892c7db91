package backendai

import (
	"context"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/stream"
)

// taken takes a turn and returns when it waits behind others.
func taken(ctx context.Context, t *turns, id sandbox.ID, do func(end func(), err error)) {
	t.mu.Lock()
	before := t.last[id]
	t.mu.Unlock()
	go func() { do(t.take(ctx, id)) }()
	for after := before; after == before; {
		t.mu.Lock()
		after = t.last[id]
		t.mu.Unlock()
	}
}

// Turns of a session come in the order in which they were taken, also when one of them is given up.
func TestTurnsAreFirstInFirstOut(t *testing.T) {
	turns := newTurns()
	first, err := turns.take(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	order, gone := make(chan int, 3), make(chan error)
	ctx, cancel := context.WithCancel(t.Context())
	taken(ctx, turns, "a", func(_ func(), err error) { gone <- err })
	for i := range 3 {
		taken(t.Context(), turns, "a", func(end func(), err error) {
			if err != nil {
				t.Error(err)
				return
			}
			order <- i
			end()
			end() // has no effect
		})
	}
	cancel()
	if err := <-gone; err == nil {
		t.Error("a turn that was given up came")
	}
	other, err := turns.take(t.Context(), "b")
	if err != nil { // another session waits for none of these
		t.Fatal(err)
	}
	other()
	first()
	for want := range 3 {
		if got := <-order; got != want {
			t.Errorf("turn %d came, want %d", got, want)
		}
	}
	end, err := turns.take(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	end()
	if len(turns.last) != 0 {
		t.Errorf("%d sessions left", len(turns.last))
	}
}

// A run waits for those before it for a limited time.
func TestTurnsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns, begun := newTurns(), time.Now()
		first, err := turns.take(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			taken(t.Context(), turns, "a", func(_ func(), err error) { // it never ends
				if took := time.Since(begun); err != nil || took != turnWait {
					t.Errorf("a turn came after %v: %v", took, err)
				}
			})
		}
		<-time.After(turnWait)
		synctest.Wait()
		first()
	})
}

// source is a record whose events arrive when they are sent.
type source struct {
	stream.Source
	events chan process.Event
	closed bool
}

func (s *source) Next(ctx context.Context, idle time.Duration) ([]process.Event, error) {
	select {
	case e, ok := <-s.events:
		if !ok {
			return nil, io.EOF
		}
		return []process.Event{e}, nil
	case <-time.After(idle):
		return nil, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *source) Close() { s.closed = true }

// A turn ends when its run has its place, also if its record was closed before, and without an event
// after a limited time.
func TestTurnsEndWithAPlace(t *testing.T) {
	for _, tt := range []struct {
		name string
		body process.Body // nil: the record ends
		ends bool
	}{
		{"output", process.Wrote{}, true},
		{"omitted output", process.Omitted{}, true},
		{"exit", process.Exited{}, true},
		{"end", process.Finished{}, true},
		{"lost", process.Lost{}, true},
		{"failed", process.Failed{}, true},
		{"end of the record", nil, true},
		{"started", process.Started{}, false},
	} {
		for _, closed := range []bool{false, true} {
			t.Run(tt.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					ended, src := false, &source{events: make(chan process.Event)}
					q := &queued{src, func() { ended = true }, slog.New(slog.DiscardHandler)}
					if closed {
						q.Close()
						synctest.Wait()
					} else {
						go q.Next(t.Context(), time.Hour)
					}
					if ended || src.closed {
						t.Fatalf("ended %v, closed %v before an event", ended, src.closed)
					}
					if tt.body == nil {
						close(src.events)
					} else {
						src.events <- process.Event{Body: tt.body}
					}
					synctest.Wait()
					if ended != tt.ends || src.closed != (closed && tt.ends) {
						t.Errorf("ended %v, closed %v after the event", ended, src.closed)
					}
					if !closed {
						q.Close()
					}
					<-time.After(turnWait)
					synctest.Wait()
					if !ended || !src.closed {
						t.Errorf("ended %v, closed %v at last", ended, src.closed)
					}
				})
			})
		}
	}
}
