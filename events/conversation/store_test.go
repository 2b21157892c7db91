package conversation_test

import (
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/events/conversation"
	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
)

func open(t *testing.T, srv *eventstest.Server) *conversation.Store {
	t.Helper()
	s := eventstest.Open(t, srv).Conversations()
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

func opened(t *testing.T, s *conversation.Store) conversation.State {
	t.Helper()
	at := time.Unix(1_800_000_000, 0)
	c, err := s.Append(t.Context(), &conversation.State{ID: conversation.NewID()}, conversation.Opened{
		Owner: "alice", Sandbox: "i1", Gateway: "g1", Token: conversation.Token{Issued: at, Expires: at.Add(time.Hour), Nonce: "n", Base: "ws://h"},
		Terms: conversation.Terms{
			Template: "cua", LLM: conversation.LLM{Vendor: "v", Model: "m", BaseURL: "u"}, Bundles: []string{"a", "b"},
			App: conversation.App{ID: "app", Set: "set", Capabilities: "{}"}, AgentVersion: "1", EndUser: "you", Persistence: sandbox.Persistence{URL: "https://a.test", Auth: "\xff\x00"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// What is stored is what is read, also after a restart of the server.
func TestStored(t *testing.T) {
	srv := eventstest.Start(t)
	s := open(t, srv)
	c := opened(t, s)
	for _, b := range []conversation.Body{
		conversation.Served{Runtime: "p-i1"}, conversation.Configured{Generations: map[string]string{"b": "g2"}, Keys: []string{"A"}}, conversation.Announced{ID: "n", Reason: "r"},
		conversation.Delivered{ID: "n"}, conversation.Ended{Status: conversation.Failed},
	} {
		var err error
		if c, err = s.Append(t.Context(), &c, b); err != nil {
			t.Fatal(err)
		}
	}
	srv.Restart()
	got, ok := open(t, srv).Of("i1")
	for _, at := range []*time.Time{&c.Created, &c.Claim.At, &c.Served, &c.Ended} {
		*at = time.Unix(0, at.UnixNano()) // as stored
	}
	if !ok || !reflect.DeepEqual(got, c) {
		t.Errorf("got  %+v\nwant %+v", got, c)
	}
}

// Of any number of claims at several gateways one succeeds, and all see its sandbox.
func TestOneClaimSucceeds(t *testing.T) {
	srv := eventstest.Start(t)
	all := []*conversation.Store{open(t, srv), open(t, srv)}
	c := opened(t, all[0])
	c, err := all[0].Append(t.Context(), &c, conversation.Served{Runtime: "p-i1"})
	if err != nil {
		t.Fatal(err)
	}
	if err := all[1].Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	var won atomic.Int32
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			s := all[i%len(all)]
			// Equal events: the mark alone tells the writers apart.
			_, err := s.Append(t.Context(), &c, conversation.Claimed{Sandbox: "i2", Gateway: "g"})
			switch {
			case err == nil:
				won.Add(1)
			case !kind.Is(err, kind.Conflict):
				t.Error(err)
			}
			if now, ok := s.Get(c.ID); !ok || now.Sandbox != "i2" || now.Generation != 2 {
				t.Errorf("the view has %+v", now)
			}
		})
	}
	wg.Wait()
	if n := won.Load(); n != 1 {
		t.Errorf("%d claims succeeded", n)
	}
	for sbx, want := range map[sandbox.ID]bool{"i1": false, "i2": true} {
		if _, ok := all[0].Of(sbx); ok != want {
			t.Errorf("of %s: %v", sbx, ok)
		}
	}
}

// A conversation is removed long after its end.
func TestSweep(t *testing.T) {
	s := open(t, eventstest.Start(t))
	c, lives := opened(t, s), opened(t, s)
	if _, err := s.Append(t.Context(), &c, conversation.Ended{Status: conversation.Completed}); err != nil {
		t.Fatal(err)
	}
	for after, want := range map[time.Duration]bool{0: true, conversation.Keep - time.Minute: true} {
		if err := s.Sweep(t.Context(), time.Now().Add(after)); err != nil {
			t.Fatal(err)
		}
		if _, ok := s.Get(c.ID); ok != want {
			t.Errorf("after %v: %v", after, ok)
		}
	}
	if err := s.Sweep(t.Context(), time.Now().Add(conversation.Keep+time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, ok := s.Get(c.ID); ok {
		t.Error("kept for too long")
	}
	if _, ok := s.Get(lives.ID); !ok {
		t.Error("removed while it lives")
	}
}
