package session

import (
	"context"
	"sync"
)

// gate limits the number and the size of the requests in flight. One goroutine acquires.
type gate struct {
	maxCalls, maxBytes int

	mu      sync.Mutex
	calls   int
	bytes   int
	waiting bool
	freed   chan struct{} // receives when something was released
	full    chan struct{} // closed while the gate is full
}

func newGate(calls, bytes int) *gate {
	return &gate{maxCalls: calls, maxBytes: bytes, freed: make(chan struct{}, 1), full: make(chan struct{})}
}

// acquire waits until a request of n bytes fits. A request that is larger than the limit
// fits if it is alone.
func (g *gate) acquire(ctx context.Context, n int) error {
	for {
		if g.try(n) {
			return nil
		}
		select {
		case <-g.freed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (g *gate) try(n int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	fits := g.calls == 0 || g.calls < g.maxCalls && g.bytes+n <= g.maxBytes
	switch {
	case fits:
		g.calls++
		g.bytes += n
		if g.waiting {
			g.waiting, g.full = false, make(chan struct{})
		}
	case !g.waiting:
		g.waiting = true
		close(g.full)
	}
	return fits
}

func (g *gate) release(n int) {
	g.mu.Lock()
	g.calls--
	g.bytes -= n
	g.mu.Unlock()
	select {
	case g.freed <- struct{}{}:
	default:
	}
}

// pressed returns a channel that is closed once a request waits: requests that only wait for
// something to happen must then end.
func (g *gate) pressed() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.full
}
