package persistence_test

import (
	"testing"
	"time"

	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/persistence"
)

func open(t *testing.T, srv *eventstest.Server) *persistence.Store {
	t.Helper()
	s := eventstest.Open(t, srv).Persistence()
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// Of two runs that claim a sandbox one succeeds, and what it stores survives a restart of the server.
func TestOneOfTwoClaimsSucceeds(t *testing.T) {
	srv := eventstest.Start(t)
	s := open(t, srv)
	first, second := s.Get("t", "i1"), s.Get("t", "i1")
	first.Holder, second.Holder = "a", "b"
	if err := s.Put(t.Context(), &first); err != nil {
		t.Fatal(err)
	}
	if err := s.Put(t.Context(), &second); !kind.Is(err, kind.Conflict) {
		t.Errorf("the second claim: %v", err)
	}
	first.Offset, first.After, first.Events, first.Requests, first.Failures, first.Error = 1, 2, 3, 4, 5, "why"
	if err := s.Put(t.Context(), &first); err != nil {
		t.Fatal(err)
	}
	srv.Restart()
	got := open(t, srv).Get("t", "i1")
	if !got.Stored.Equal(first.Stored) {
		t.Errorf("stored at %v, want %v", got.Stored, first.Stored)
	}
	got.Stored, got.Received = first.Stored, first.Received
	if got != first {
		t.Errorf("got %+v, want %+v", got, first)
	}
}

func TestFree(t *testing.T) {
	now := time.Now()
	for _, tt := range []struct {
		name string
		p    persistence.Progress
		want bool
	}{
		{"without a claim", persistence.Progress{}, true},
		{"its own", persistence.Progress{Holder: "a", Received: now}, true},
		{"of another run", persistence.Progress{Holder: "b", Received: now.Add(-persistence.Hold)}, false},
		{"of another run that is silent", persistence.Progress{Holder: "b", Received: now.Add(-11 * time.Second)}, true},
		{"done", persistence.Progress{Done: true}, false},
	} {
		if got := tt.p.Free("a", now); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}
