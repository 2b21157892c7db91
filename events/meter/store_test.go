package meter_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/meter"
	"github.com/millrace/millrace/events/usage"
)

var noon = time.Date(2026, 2, 28, 12, 0, 0, 0, time.UTC)

func open(t *testing.T, srv *eventstest.Server) *meter.Store {
	t.Helper()
	s := eventstest.Open(t, srv).Meter()
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	sync(t, s)
	return s
}

func sync(t *testing.T, s *meter.Store) {
	t.Helper()
	if err := s.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Of two writers with the same fact one succeeds; a change that meets another one is applied to
// it. The facts survive a restart of the server.
func TestOneOfTwoWritersSucceeds(t *testing.T) {
	srv := eventstest.Start(t)
	first, second := open(t, srv), open(t, srv)
	f := usage.New("t", "i1", usage.Sandbox, noon).Measure(noon.Add(13*time.Hour), time.Second)
	other := f
	if err := first.Put(t.Context(), &f); err != nil {
		t.Fatal(err)
	}
	if err := second.Put(t.Context(), &other); !kind.Is(err, kind.Conflict) {
		t.Errorf("the same fact by another writer: %v", err)
	}
	calls := 0
	f, err := second.Change(t.Context(), "t", "i1", func(f usage.Fact, ok bool) (usage.Fact, bool) {
		if calls++; calls == 1 {
			meanwhile := f.Measure(noon.Add(14*time.Hour), 2*time.Second)
			if err := first.Put(t.Context(), &meanwhile); err != nil {
				t.Error(err)
			}
		}
		return f.Measure(noon.Add(15*time.Hour), 5*time.Second).End(noon.Add(15*time.Hour), true), ok
	})
	if err != nil || calls != 2 || f.CPU() != 5*time.Second {
		t.Fatalf("%+v after %d calls, %v", f, calls, err)
	}
	srv.Restart()
	third := open(t, srv)
	if got, ok := third.Fact("t", "i1"); !ok || fmt.Sprint(got) != fmt.Sprint(f) {
		t.Errorf("after a restart: %+v, want %+v", got, f)
	}
	if got := third.Facts("t"); len(got) != 1 || len(third.Facts("other")) != 0 || len(third.Open()) != 0 {
		t.Errorf("after a restart: %+v", got)
	}
}
