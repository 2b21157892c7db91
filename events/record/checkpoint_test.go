package record_test

import (
	"testing"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/fleet"
)

// checkpoint compares the stream of the tests' host with an earlier checkpoint.
func checkpoint(t *testing.T, log *events.Log, earlier fleet.Checkpoint) (now fleet.Checkpoint, whole bool) {
	t.Helper()
	now, whole, err := log.Checkpoint(t.Context(), eventstest.Host, earlier)
	if err != nil {
		t.Fatal(err)
	}
	return now, whole
}

func appendRecords(t *testing.T, log *events.Log, n int) {
	t.Helper()
	for range n {
		eventstest.AppendAll(t, log.Writer(eventstest.NewRef(), 1), eventstest.Script(9), 2)
	}
}

func TestStreamIsWholeAfterRestarts(t *testing.T) {
	srv := eventstest.Start(t)
	log := eventstest.Open(t, srv)
	empty, whole := checkpoint(t, log, fleet.Checkpoint{})
	if empty != (fleet.Checkpoint{}) || whole {
		t.Fatalf("an empty stream: %+v, %v", empty, whole)
	}
	appendRecords(t, log, 1)
	first, whole := checkpoint(t, log, empty)
	if first.Seq == 0 || first.Stored.IsZero() || first.At.IsZero() || whole {
		t.Fatalf("the first checkpoint: %+v, %v", first, whole)
	}
	for range 2 {
		appendRecords(t, log, 2)
		back := log.Reconnected()
		srv.Restart()
		<-back
		next, whole := checkpoint(t, log, first)
		if !whole || next.Seq <= first.Seq || next.Missing != 0 {
			t.Fatalf("after a restart: %+v, %v", next, whole)
		}
		first = next
	}
}

// A loss shows although the stream continues after it.
func TestDamagedStreamIsNotWhole(t *testing.T) {
	for _, d := range eventstest.Damages() {
		t.Run(d.Name, func(t *testing.T) {
			t.Parallel()
			srv := eventstest.Start(t)
			log := eventstest.Open(t, srv)
			appendRecords(t, log, 20)
			before, _ := checkpoint(t, log, fleet.Checkpoint{})
			srv.Damage("OUT_00", d)
			srv.Resume()
			appendRecords(t, log, 20)
			after, whole := checkpoint(t, log, before)
			if whole {
				t.Fatalf("%+v is whole after the damage: now %+v", before, after)
			}
			if _, whole := checkpoint(t, log, after); !whole {
				t.Errorf("%+v is not whole although nothing happened since", after)
			}
		})
	}
}
