package attachments_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/attachment"
	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/attachments"
)

const surface = "test"

// gateway is a run of a gateway.
type gateway struct {
	*attachments.Keeper
	store *attachment.Store
	ended atomic.Int32 // calls of End
	fails atomic.Int32 // calls of End that fail
	stop  func()

	paused atomic.Bool // its view of all sandboxes
}

// Sandbox implements [attachments.Sandboxes].
func (g *gateway) Sandbox(id sandbox.ID) (sandbox.State, bool) {
	s := sandbox.State{ID: id, Phase: sandbox.PhaseRunning}
	if g.paused.Load() {
		s.Phase = sandbox.PhasePaused
	}
	return s, true
}

// newGateway runs a keeper until the end of the test, or until stop.
func newGateway(t *testing.T, log *events.Log) *gateway {
	t.Helper()
	g := &gateway{store: log.Attachments()}
	g.Keeper = attachments.New(attachments.Config{Store: g.store, Sandboxes: g, Slog: slog.New(slog.DiscardHandler), Ends: map[string]attachments.End{
		surface: func(context.Context, *attachment.Session) error {
			if g.fails.Add(-1) >= 0 {
				return errors.New("not now")
			}
			g.ended.Add(1)
			return nil
		},
	}})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx) }()
	g.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	t.Cleanup(g.stop)
	return g
}

func open(t *testing.T, g *gateway, p attachment.Policy) *attachments.Attachment {
	t.Helper()
	a, err := g.Open(t.Context(), attachment.Session{Tenant: "alice", Surface: surface, Sandbox: "i1", Policy: p})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func resume(t *testing.T, g *gateway, id string) (*attachments.Attachment, error) {
	t.Helper()
	return g.Resume(t.Context(), "alice", id, func(s *attachment.Session) bool { return s.Surface == surface })
}

// until waits for a condition.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-limit.C:
			t.Fatalf("%s: not within a minute", what)
		}
	}
}

// A session has one client at all gateways together.
func TestOneClient(t *testing.T) {
	t.Parallel()
	log := eventstest.Open(t, eventstest.Start(t))
	a, b := newGateway(t, log), newGateway(t, log)
	first := open(t, a, attachment.Policy{})
	id := first.Session()
	for name, g := range map[string]*gateway{"here": a, "there": b} {
		if _, err := resume(t, g, id); !kind.Is(err, kind.Conflict) {
			t.Errorf("resumed %s while it has a client: %v", name, err)
		}
	}
	if _, err := b.Resume(t.Context(), "bob", id, func(*attachment.Session) bool { return true }); !kind.Is(err, kind.NotFound) {
		t.Errorf("resumed by another tenant: %v", err)
	}
	if _, err := b.Resume(t.Context(), "alice", id, func(*attachment.Session) bool { return false }); !kind.Is(err, kind.NotFound) {
		t.Errorf("resumed at another place: %v", err)
	}
	first.Detach()
	for range 20 { // two gateways at once
		var wg sync.WaitGroup
		var got [2]*attachments.Attachment
		for i, g := range []*gateway{a, b} {
			wg.Go(func() {
				var err error
				if got[i], err = resume(t, g, id); err != nil && !kind.Is(err, kind.Conflict) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if (got[0] == nil) == (got[1] == nil) {
			t.Fatalf("attached at both or at none: %v", got)
		}
		for _, x := range got {
			if x != nil {
				if !x.Resumed() || x.Session() != id {
					t.Errorf("resumed %v, session %s", x.Resumed(), x.Session())
				}
				x.Detach()
			}
		}
	}
}

// The client of a gateway that died resumes at another one.
func TestAnotherGatewayTakesOver(t *testing.T) {
	t.Parallel()
	log := eventstest.Open(t, eventstest.Start(t))
	a := newGateway(t, log)
	first := open(t, a, attachment.Policy{})
	a.stop()
	b := newGateway(t, log)
	if _, err := resume(t, b, first.Session()); !kind.Is(err, kind.Conflict) {
		t.Fatalf("resumed before the lease ended: %v", err)
	}
	var second *attachments.Attachment
	until(t, "resumed", func() bool {
		var err error
		second, err = resume(t, b, first.Session())
		return err == nil
	})
	first.Detach() // late, which has no effect
	if _, err := resume(t, b, first.Session()); !kind.Is(err, kind.Conflict) {
		t.Errorf("the client that resumed was detached: %v", err)
	}
	if !second.OnLost(func() {})() {
		t.Error("the attachment was lost")
	}
}

// A session that is due ends once, at one of the gateways.
func TestSessionsEnd(t *testing.T) {
	t.Parallel()
	log := eventstest.Open(t, eventstest.Start(t))
	gateways := []*gateway{newGateway(t, log), newGateway(t, log)}
	ended := func() int32 { return gateways[0].ended.Load() + gateways[1].ended.Load() }
	kept, short, once := open(t, gateways[0], attachment.Policy{TTL: -1}), open(t, gateways[0], attachment.Policy{TTL: time.Millisecond}), open(t, gateways[1], attachment.Policy{Terminate: true})
	live := open(t, gateways[0], attachment.Policy{TTL: time.Millisecond})
	kept.Detach()
	short.Detach()
	once.Detach()
	for _, a := range []*attachments.Attachment{short, once} {
		until(t, "ended", func() bool {
			s, ok := gateways[1].store.Session("alice", a.Session())
			return ok && s.Phase == attachment.Ended
		})
		if _, err := resume(t, gateways[0], a.Session()); !kind.Is(err, kind.NotFound) {
			t.Errorf("resumed after its end: %v", err)
		}
	}
	if n := ended(); n != 2 {
		t.Errorf("%d ends, want 2", n)
	}
	if _, err := resume(t, gateways[1], kept.Session()); err != nil {
		t.Errorf("a session without a limit: %v", err)
	}
	if _, err := resume(t, gateways[1], live.Session()); !kind.Is(err, kind.Conflict) {
		t.Errorf("a session that has a client: %v", err)
	}
}

// A session in a paused sandbox cannot be resumed after its time, and what belongs to it ends
// when the sandbox runs again: there is no attempt before.
func TestPausedSandbox(t *testing.T) {
	t.Parallel()
	log := eventstest.Open(t, eventstest.Start(t))
	g := newGateway(t, log)
	g.paused.Store(true)
	a := open(t, g, attachment.Policy{TTL: time.Millisecond})
	a.Detach()
	phase := func(want attachment.Phase) func() bool {
		return func() bool {
			s, ok := g.store.Session("alice", a.Session())
			return ok && s.Phase == want
		}
	}
	until(t, "ending", phase(attachment.Ending))
	if _, err := resume(t, g, a.Session()); !kind.Is(err, kind.NotFound) {
		t.Errorf("resumed after its time: %v", err)
	}
	if n := g.ended.Load(); n != 0 {
		t.Errorf("%d attempts to end it", n)
	}
}

// An attachment is lost when another writer has its session.
func TestLost(t *testing.T) {
	t.Parallel()
	log := eventstest.Open(t, eventstest.Start(t))
	g := newGateway(t, log)
	a := open(t, g, attachment.Policy{})
	s := a.State()
	until(t, "stored", func() bool {
		var ok bool
		s, ok = g.store.Session("alice", a.Session())
		return ok
	})
	s.Gateway, s.Client = "ANOTHER", "ANOTHER"
	if err := g.store.Put(t.Context(), &s); err != nil {
		t.Fatal(err)
	}
	lost := make(chan struct{})
	a.OnLost(func() { close(lost) })
	<-lost
}

// A session that is stored as attached here but has no client is detached: the store could
// not be reached when its client left.
func TestAbandonedAttachments(t *testing.T) {
	t.Parallel()
	log := eventstest.Open(t, eventstest.Start(t))
	g := newGateway(t, log)
	s := open(t, g, attachment.Policy{}).State()
	s.ID, s.Client, s.Rev = attachment.NewID(), attachment.NewID(), 0
	if err := g.store.Put(t.Context(), &s); err != nil {
		t.Fatal(err)
	}
	until(t, "detached", func() bool {
		got, ok := g.store.Session("alice", s.ID)
		return ok && got.Phase == attachment.Detached
	})
}
