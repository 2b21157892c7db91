package conversations

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/events/conversation"
	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/attachments"
	"github.com/millrace/millrace/services/gateway/internal/core"
)

// sandboxes are sandboxes by id.
type sandboxes struct {
	Sandboxes
	mu  sync.Mutex
	all map[sandbox.ID]sandbox.State
}

func (s *sandboxes) State(id sandbox.ID) (sandbox.State, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st, ok := s.all[id]
	return st, ok
}

func (s *sandboxes) Reachable(sandbox.ID) bool { return true }

func (s *sandboxes) set(id sandbox.ID, p sandbox.Phase) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all[id] = sandbox.State{ID: id, Phase: p}
}

// files report each snapshot that begins, and wait with those of one sandbox.
type files struct {
	Files
	slow  sandbox.ID
	saves chan sandbox.ID
	done  chan struct{} // closed: no snapshot waits any more
}

func (f *files) Save(ctx context.Context, _ core.Principal, _ conversation.ID, id sandbox.ID) error {
	select {
	case f.saves <- id:
	case <-ctx.Done():
		return ctx.Err()
	}
	if id == f.slow {
		select {
		case <-f.done:
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

func (*files) Saved(core.Principal, conversation.ID) time.Time { return time.Time{} }

// A slow snapshot delays neither the snapshots of other sandboxes nor the ends of conversations. What changes
// meanwhile is saved afterwards, not beside it.
func TestASlowSnapshotDelaysNothingElse(t *testing.T) {
	log := eventstest.Open(t, eventstest.Start(t))
	store := log.Conversations()
	boxes := &sandboxes{all: make(map[sandbox.ID]sandbox.State)}
	kept := &files{slow: "slow", saves: make(chan sandbox.ID), done: make(chan struct{})}
	cs := New(Config{
		Store: store, Sandboxes: boxes, Files: kept, Slog: slog.New(slog.DiscardHandler),
		Keeper: attachments.New(attachments.Config{Store: log.Attachments()}),
		Derive: func(string) string { return "00112233445566778899aabbccddeeff" },
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := cs.Start(ctx); err != nil {
		t.Fatal(err)
	}
	ids := make(map[sandbox.ID]conversation.ID)
	for _, sbx := range []sandbox.ID{"slow", "quick"} {
		boxes.set(sbx, sandbox.PhaseRunning)
		c, err := store.Append(ctx, &conversation.State{ID: conversation.NewID()}, conversation.Opened{Owner: "alice", Sandbox: sbx})
		if err == nil {
			c, err = store.Append(ctx, &c, conversation.Served{Runtime: "p"})
		}
		if err != nil {
			t.Fatal(err)
		}
		ids[sbx] = c.ID
	}
	ended := make(chan error)
	running, stop := context.WithCancel(ctx)
	go func() { ended <- cs.Run(running) }()
	next := func(want sandbox.ID) {
		t.Helper()
		select {
		case got := <-kept.saves:
			if got != want {
				t.Fatalf("saved %s, want %s", got, want)
			}
		case <-ctx.Done():
			t.Fatalf("%s is not saved", want)
		}
	}
	cs.saver.want("slow", time.Now())
	next("slow")
	cs.saver.want("slow", time.Now()) // changes again
	for range 3 {
		cs.saver.want("quick", time.Now())
		next("quick")
	}
	boxes.set("quick", sandbox.PhaseDestroyed)
	if _, err := store.Await(ctx, ids["quick"], func(c *conversation.State) bool { return c.Phase == conversation.Over }); err != nil {
		t.Fatalf("the end is not stored: %v", err)
	}
	close(kept.done)
	next("slow")
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
