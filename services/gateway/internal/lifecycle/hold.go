package lifecycle

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/core"
)

const (
	// holdCheck is how often the deadlines of held sandboxes are checked.
	holdCheck = time.Second
	// minMove and maxMove bound the time between two moves of a deadline. A sandbox ends at most
	// that much later than its idle timeout, plus holdCheck.
	minMove, maxMove = 5 * time.Second, 7 * time.Second
	moveTimeout      = 2 * time.Second
	maxMoves         = 16 // maximum number of concurrent appends
)

// holds are the sandboxes that clients of this gateway use.
type holds struct {
	mu   sync.Mutex
	all  map[sandbox.ID]hold
	wake chan struct{} // has an element if news has
	news []sandbox.ID  // held or released since the last check
}

// hold is the use of one sandbox.
type hold struct {
	clients int       // 0: it is used no more
	used    time.Time // when the last client left; zero while there is one
}

// Hold keeps a sandbox in use until release is called, which may be called more than once. It reports
// false, and does nothing, unless the view has the sandbox and it has an idle timeout. A client that
// has a stream to a sandbox, or a command or a file request in it, holds it.
//
// While a sandbox is held, its deadline is at least its idle timeout ahead, and when it is released, at
// least as far. Deadlines are only moved ahead, so that several gateways may hold a sandbox. If a
// gateway dies, the sandbox ends because no other one moves its deadline. Hold waits for no append:
// [Lifecycle.KeepHeld] makes them.
func (l *Lifecycle) Hold(id sandbox.ID) (release func(), ok bool) {
	if st, found := l.core.View.Sandbox(id); !found || st.Request.Idle == 0 || st.Over() {
		return noRelease, false
	}
	l.holds.change(id, 1, time.Time{})
	var once sync.Once
	return func() { once.Do(func() { l.holds.change(id, -1, time.Now()) }) }, true
}

func noRelease() {}

// change adds clients to a sandbox; left is when the last one has left.
func (h *holds) change(id sandbox.ID, clients int, left time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	x := h.all[id]
	if x.clients += clients; x.clients == 0 {
		x.used = left
	} else {
		x.used = time.Time{}
	}
	h.all[id] = x
	h.news = append(h.news, id)
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// changed returns the sandboxes that were held or released since the last call.
func (h *holds) changed() []sandbox.ID {
	h.mu.Lock()
	defer h.mu.Unlock()
	ids := h.news
	h.news = nil
	return ids
}

// ids returns all sandboxes.
func (h *holds) ids() []sandbox.ID {
	h.mu.Lock()
	defer h.mu.Unlock()
	ids := make([]sandbox.ID, 0, len(h.all))
	for id := range h.all {
		ids = append(ids, id)
	}
	return ids
}

// of returns the use of a sandbox.
func (h *holds) of(id sandbox.ID) (hold, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	x, ok := h.all[id]
	return x, ok
}

// forget drops a sandbox whose use has not changed since was.
func (h *holds) forget(id sandbox.ID, was hold) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.all[id] == was && was.clients == 0 {
		delete(h.all, id)
	}
}

// moved returns the deadline that a use of a running sandbox requires; false: its deadline is late
// enough. The deadline is moved further than necessary, so that it is moved seldom however many
// requests there are.
func (x hold) moved(s *sandbox.State, now time.Time) (time.Time, bool) {
	idle := s.Request.Idle
	if idle == 0 || !s.IsRunning() {
		return time.Time{}, false
	}
	used := x.used
	if x.clients > 0 {
		used = now.Add(holdCheck) // it is checked again then
	}
	need := used.Add(idle)
	to := need.Add(min(max(idle/3, minMove), maxMove))
	return s.Clamp(to), s.Deadline.Before(s.Clamp(need))
}

// KeepHeld moves the deadlines of held sandboxes until ctx ends, which must be after the last release.
func (l *Lifecycle) KeepHeld(ctx context.Context) {
	t := time.NewTicker(holdCheck)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			l.holds.check(context.WithoutCancel(ctx), l.core, l.holds.ids())
			return
		case <-l.holds.wake:
			l.holds.check(ctx, l.core, l.holds.changed())
		case <-t.C:
			l.holds.check(ctx, l.core, l.holds.ids())
		}
	}
}

// check moves the deadlines of the sandboxes for which that is due. One that fails is tried again.
func (h *holds) check(ctx context.Context, c *core.Core, ids []sandbox.ID) {
	var g errgroup.Group
	g.SetLimit(maxMoves)
	for _, id := range ids {
		x, ok := h.of(id)
		if !ok {
			continue
		}
		st, known := c.View.Sandbox(id)
		if _, due := x.moved(&st, time.Now()); known && due {
			g.Go(func() error {
				h.move(ctx, c, id, x)
				return nil
			})
			continue
		}
		h.forget(id, x)
	}
	g.Wait() //nolint:errcheck // no function returns an error
}

func (h *holds) move(ctx context.Context, c *core.Core, id sandbox.ID, x hold) {
	ctx, cancel := context.WithTimeout(ctx, moveTimeout)
	defer cancel()
	_, err := c.View.ChangeSandbox(ctx, id, func(s sandbox.State) ([]sandbox.Body, error) {
		if at, due := x.moved(&s, time.Now()); due {
			return []sandbox.Body{sandbox.DeadlineSet{Deadline: at}}, nil
		}
		return nil, nil
	})
	switch {
	case err == nil:
		h.forget(id, x)
	case !kind.Is(err, kind.NotFound):
		c.Slog.Warn("move deadline of a used sandbox failed", "sandbox", id, "err", err)
	}
}
