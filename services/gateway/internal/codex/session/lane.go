package session

import (
	"context"
	"sync"
	"time"
)

// lanes keep the requests about each process in order.
type lanes struct {
	mu  sync.Mutex
	all map[string]*lane
}

// lane is the end of the queue of one process. It exists while it has requests.
type lane struct {
	requests int
	answered <-chan struct{} // closed when the last request may be followed by another answer
	worked   <-chan struct{} // closed when the last start or write is done
	started  <-chan struct{} // closed when the last start is done
}

// turn is the place of one request in a lane.
type turn struct {
	lanes    *lanes
	name     string
	before   <-chan struct{} // the answers before
	prior    <-chan struct{} // the starts and writes before
	started  <-chan struct{} // the starts before
	answered chan struct{}
	worked   chan struct{} // nil unless the request is a start or a write
	passOnce sync.Once
	workOnce sync.Once
}

// effect is what a request does to the order of a lane.
type effect uint8

const (
	observes effect = iota // a read, a signal: runs once the process was started
	writes                 // runs behind earlier starts and writes
	starts                 // likewise
)

var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// enter appends a request. Requests must be entered in the order in which they arrived.
func (l *lanes) enter(name string, e effect) *turn {
	l.mu.Lock()
	defer l.mu.Unlock()
	ln := l.all[name]
	if ln == nil {
		if l.all == nil {
			l.all = make(map[string]*lane)
		}
		ln = &lane{answered: closed, worked: closed, started: closed}
		l.all[name] = ln
	}
	t := &turn{lanes: l, name: name, before: ln.answered, prior: ln.worked, started: ln.started, answered: make(chan struct{})}
	ln.requests++
	ln.answered = t.answered
	if e != observes {
		t.worked = make(chan struct{})
		ln.worked = t.worked
		if e == starts {
			ln.started = t.worked
		}
	}
	return t
}

// await waits for a channel of the turn.
func await(ctx context.Context, c <-chan struct{}) error {
	select {
	case <-c:
		return nil
	default:
	}
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// awaitWithin waits for a channel, but not for longer than d.
func awaitWithin(ctx context.Context, c <-chan struct{}, d time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return await(ctx, c)
}

// done lets the next start or write run.
func (t *turn) done() {
	if t.worked != nil {
		t.workOnce.Do(func() { close(t.worked) })
	}
}

// pass lets the next answer leave once those before this request's have left.
func (t *turn) pass() {
	t.passOnce.Do(func() {
		go func() {
			<-t.before
			close(t.answered)
		}()
	})
}

// leave ends the turn: its answer was sent, or never will be.
func (t *turn) leave() {
	t.done()
	t.passOnce.Do(func() { close(t.answered) })
	t.lanes.mu.Lock()
	defer t.lanes.mu.Unlock()
	ln := t.lanes.all[t.name]
	if ln.requests--; ln.requests == 0 {
		delete(t.lanes.all, t.name)
	}
}
