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
	parallel     = 4 // snapshots at the same time
)

// saver decides when the files of conversations are saved.
type saver struct {
	mu  sync.Mutex
	due map[sandbox.ID]time.Time // of sandboxes that changed since they were saved
}

func newSaver() saver { return saver{due: make(map[sandbox.ID]time.Time)} }

// want has a sandbox saved at a time, or earlier.
func (s *saver) want(id sandbox.ID, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if was, ok := s.due[id]; !ok || at.Before(was) {
		s.due[id] = at
	}
}

// take returns the sandboxes that are due.
func (s *saver) take(now time.Time) (out []sandbox.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, at := range s.due {
		if !at.After(now) {
			out = append(out, id)
			delete(s.due, id)
		}
	}
	return out
}

// saveDue saves what is due, a few at the same time.
func (cs *Conversations) saveDue(ctx context.Context, now time.Time) {
	var g errgroup.Group
	g.SetLimit(parallel)
	for _, id := range cs.saver.take(now) {
		c, ok := cs.cfg.Store.Of(id)
		if st, runs := cs.cfg.Sandboxes.State(id); !ok || !runs || !st.IsRunning() || c.Phase != conversation.Serving {
			continue
		}
		g.Go(func() error {
			cs.save(ctx, &c, id)
			return nil
		})
	}
	g.Wait() //nolint:errcheck // no function returns an error
}
