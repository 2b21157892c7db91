package catalog_test

import (
	"context"
	"testing"
	"time"

	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/process"
)

// A client that has an event finds in the catalog what the event reports: the reader returns it
// only when the view has that, whichever of the two was stored first.
func TestEventsAreShownWithTheirEntry(t *testing.T) {
	log := eventstest.Open(t, eventstest.Start(t))
	view := eventstest.View(t, log)
	ref, all := eventstest.NewRef(), eventstest.Script(5)
	sum := process.Summary{ID: ref.ID, Host: ref.Host, Tenant: "t", Epoch: 1}
	rev, err := log.PutSummary(t.Context(), &sum, 0)
	if err != nil {
		t.Fatal(err)
	}
	exit := all[4].Body.(process.Finished).Exit
	w, r := log.Writer(ref, 1), log.ReadNew(ref).ShownBy(view)
	defer r.Close()
	steps := []struct {
		name  string
		upTo  int
		enter func() // nil: the event is shown as soon as it is stored
		shown func(*process.Summary) bool
	}{
		{"accepted", 1, nil, nil},
		{"started", 2, func() { sum.PID, sum.Started = 7, time.Unix(1, 0) }, func(s *process.Summary) bool { return s.PID == 7 }},
		{"output", 3, nil, nil},
		{"end", 5, func() { sum.Exit, sum.Ended = &exit, time.Unix(2, 0) }, func(s *process.Summary) bool { return !s.Active() }},
	}
	for _, s := range steps {
		eventstest.AppendAll(t, w, all[r.After():s.upTo], 2)
		got := make(chan error, 1)
		go func() {
			_, err := r.Next(t.Context(), 0)
			if is, _, _ := view.Process(ref.ID); err == nil && s.shown != nil && !s.shown(&is) {
				t.Errorf("%s: returned before the view has it", s.name)
			}
			got <- err
		}()
		if s.enter != nil {
			s.enter()
			if rev, err = log.PutSummary(t.Context(), &sum, rev); err != nil {
				t.Fatal(err)
			}
		}
		if err := <-got; err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		if int(r.After()) != s.upTo {
			t.Errorf("%s: read up to %d, want %d", s.name, r.After(), s.upTo)
		}
	}
}

// Events of a process that the catalog does not have, because its entry was dropped, are returned
// at once; so are those of a reader whose context has ended.
func TestEventsWithoutAnEntryAreShown(t *testing.T) {
	log := eventstest.Open(t, eventstest.Start(t))
	view := eventstest.View(t, log)
	ref, all := eventstest.NewRef(), eventstest.Script(5)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // less than AwaitShown's own
	defer cancel()
	view.AwaitShown(ctx, ref.ID, all)
	if ctx.Err() != nil {
		t.Error("waited for an entry that does not exist")
	}
	sum := process.Summary{ID: ref.ID, Host: ref.Host, Tenant: "t", Epoch: 1}
	if _, err := log.PutSummary(t.Context(), &sum, 0); err != nil {
		t.Fatal(err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	view.AwaitShown(ended, ref.ID, all)
}
