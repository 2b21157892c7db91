package conversations

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/events/conversation"
	"github.com/millrace/millrace/events/sandbox"
)

const (
	// saveInterval is the time between two snapshots of a sandbox whose client sends something.
	saveInterval = time.Minute
	// parallel is the number of snapshots that a gateway takes at the same time.
	parallel = 16
)

// saver decides when the files of sandboxes are saved.
type saver struct {
	mu   sync.Mutex
	due  map[sandbox.ID]time.Time // of sandboxes that changed since they were saved
	busy map[sandbox.ID]bool      // sandboxes that are being saved
}

func newSaver() saver {
	return saver{due: make(map[sandbox.ID]time.Time), busy: make(map[sandbox.ID]bool)}
}

// want has a sandbox saved at a time, or earlier.
func (s *saver) want(id sandbox.ID, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if was, ok := s.due[id]; !ok || at.Before(was) {
		s.due[id] = at
	}
}

// take returns the sandboxes that are due, which are then busy until done is called. A sandbox that is busy
// has to wait: it is saved again afterwards.
func (s *saver) take(now time.Time) (out []sandbox.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, at := range s.due {
		if !at.After(now) && !s.busy[id] {
			out = append(out, id)
			s.busy[id] = true
			delete(s.due, id)
		}
	}
	return out
}

func (s *saver) done(id sandbox.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.busy, id)
}

// saveAll saves the files of sandboxes that are due until ctx ends. A slow snapshot delays no other one,
// unless the maximum number is slow.
func (cs *Conversations) saveAll(ctx context.Context) {
	var g errgroup.Group
	g.SetLimit(parallel)
	defer g.Wait() //nolint:errcheck // no function returns an error
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			for _, id := range cs.saver.take(now) {
				g.Go(func() error {
					defer cs.saver.done(id)
					cs.saveServing(ctx, id)
					return nil
				})
			}
		}
	}
}

// saveServing saves the files of a sandbox if it serves a conversation.
func (cs *Conversations) saveServing(ctx context.Context, id sandbox.ID) {
	c, ok := cs.cfg.Store.Of(id)
	if st, runs := cs.cfg.Sandboxes.State(id); ok && runs && st.IsRunning() && c.Phase == conversation.Serving {
		cs.save(ctx, &c, id)
	}
}
