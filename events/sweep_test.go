package events_test

import (
	"testing"
	"time"

	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/sandbox"
)

// Records of sandboxes that ended go when they are old; one that lives keeps all of its
// record, however old that is.
func TestRecordsOfSandboxesThatLiveAreKept(t *testing.T) {
	srv := eventstest.Start(t)
	log := eventstest.Open(t, srv)
	view := eventstest.View(t, log)
	record := func(bodies ...sandbox.Body) sandbox.ID {
		id := sandbox.NewID()
		all := append([]sandbox.Body{sandbox.Requested{}, sandbox.Placed{Host: "h", Epoch: 1}}, bodies...)
		for i, b := range all {
			if i == 0 {
				_, err := view.CreateSandbox(t.Context(), "t", id, b.(sandbox.Requested))
				if err != nil {
					t.Fatal(err)
				}
				continue
			}
			_, err := view.ChangeSandbox(t.Context(), id, func(sandbox.State) ([]sandbox.Body, error) { return []sandbox.Body{b}, nil })
			if err != nil {
				t.Fatal(err)
			}
		}
		return id
	}
	forgotten := record(sandbox.Running{}, sandbox.Lost{})
	lives := record(sandbox.Running{}, sandbox.NetworkUsed{Sent: 1}, sandbox.NetworkUsed{Sent: 2})
	paused := record(sandbox.Running{}, sandbox.Pausing{}, sandbox.Paused{})
	view.Forget(time.Now().Add(time.Hour))
	over := record(sandbox.Failed{})
	last := record(sandbox.Failed{}) // others know by it how far there is to read
	for _, tt := range []struct {
		age  time.Duration
		want int
	}{{time.Hour, 0}, {0, 0}, {0, 2}, {0, 0}} {
		if n, err := view.SweepSandboxesOlder(t.Context(), tt.age); n != tt.want || err != nil {
			t.Errorf("older than %v: %d records removed, %v; want %d", tt.age, n, err, tt.want)
		}
	}
	next := eventstest.View(t, log)
	for id, want := range map[sandbox.ID]sandbox.Phase{lives: sandbox.PhaseRunning, paused: sandbox.PhasePaused} {
		if s, _ := next.Sandbox(id); s.Phase != want || s.Host != "h" {
			t.Errorf("a sandbox that is %s is %q on host %q", want, s.Phase, s.Host)
		}
	}
	for _, id := range []sandbox.ID{forgotten, over} {
		if s, ok := next.Sandbox(id); ok {
			t.Errorf("one that is over is %q", s.Phase)
		}
	}
	if _, ok := next.Sandbox(last); !ok {
		t.Error("the last one was removed")
	}
}

// A log of an earlier version, which let go of what is old, does not any more.
func TestRecordsOfSandboxesHaveNoAge(t *testing.T) {
	srv := eventstest.Start(t)
	eventstest.Open(t, srv)
	of := func() time.Duration { return streamOf(t, srv, "SBX").CachedInfo().Config.MaxAge }
	if age := of(); age != 0 {
		t.Errorf("kept for %v", age)
	}
	was := streamOf(t, srv, "SBX").CachedInfo().Config
	was.MaxAge = 30 * 24 * time.Hour
	if _, err := eventstest.JetStream(t, srv).UpdateStream(t.Context(), was); err != nil {
		t.Fatal(err)
	}
	if of() == 0 {
		t.Fatal("the stream was not changed")
	}
	eventstest.Open(t, srv)
	if age := of(); age != 0 {
		t.Errorf("a stream of before is kept for %v", age)
	}
}
