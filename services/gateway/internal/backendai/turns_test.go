package backendai

import (
	"context"
	"testing"

	"github.com/millrace/millrace/events/sandbox"
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
