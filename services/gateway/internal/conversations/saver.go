package conversations

import (
	"context"
	"hash/fnv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/events/conversation"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/core"
)

const (
	// saveInterval is the time between two snapshots of a sandbox whose client sends something.
	saveInterval = time.Minute
	// parallel is the number of snapshots that a gateway takes at the same time.
	parallel = 16
	// missedAfter is how long after its client has left a sandbox is saved if nothing else has done that, at
	// one gateway. Others wait for up to missedSpread longer.
	missedAfter, missedSpread = 5 * time.Second, 10 * time.Second
)

// saver decides when the files of sandboxes are saved.
type saver struct {
	mu   sync.Mutex
	due  map[sandbox.ID]time.Time // of sandboxes that changed since they were saved
	busy map[sandbox.ID]bool      // sandboxes that are being saved

	missed map[sandbox.ID]time.Time // when the client left for which wantMissed had a sandbox saved; of saveAll
}

func newSaver() saver {
	return saver{due: make(map[sandbox.ID]time.Time), busy: make(map[sandbox.ID]bool), missed: make(map[sandbox.ID]time.Time)}
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
			cs.wantMissed(now)
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

// wantMissed has sandboxes saved whose client has left and whose gateway has died before it saved them. Each
// departure is looked at once.
func (cs *Conversations) wantMissed(now time.Time) {
	missed := make(map[sandbox.ID]time.Time)
	for _, c := range cs.AllServing() {
		left, ok := cs.cfg.Keeper.Left(c.Owner, attachmentID(&c))
		if !ok || now.Sub(left) < missedAfter+spread(cs.cfg.Keeper.ID(), c.Sandbox) {
			continue
		}
		missed[c.Sandbox] = left
		if cs.saver.missed[c.Sandbox].Equal(left) {
			continue
		}
		if cs.cfg.Files.Saved(core.Principal{Tenant: c.Owner}, c.ID).Before(left) {
			cs.saver.want(c.Sandbox, now)
		}
	}
	cs.saver.missed = missed
}

// spread returns a time up to missedSpread, so that not all gateways save a sandbox at the same time.
func spread(gateway string, id sandbox.ID) time.Duration {
	h := fnv.New32a()
	h.Write([]byte(gateway + string(id)))
	return time.Duration(h.Sum32()) % missedSpread
}
