package record_test

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

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

// A checkpoint is a message that can be read, although the last one is not.
func TestCheckpointBeforeAnUnreadableEnd(t *testing.T) {
	srv := eventstest.Start(t)
	log := eventstest.Open(t, srv)
	appendRecords(t, log, 2)
	before, _ := checkpoint(t, log, fleet.Checkpoint{})
	nc, err := nats.Connect("", nats.InProcessServer(srv))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	out, err := js.Stream(t.Context(), "OUT_00")
	if err != nil {
		t.Fatal(err)
	}
	last, err := out.GetMsg(t.Context(), before.Seq)
	if err != nil {
		t.Fatal(err)
	}
	if err := out.Purge(t.Context(), jetstream.WithPurgeSubject(last.Subject)); err != nil {
		t.Fatal(err)
	}
	now, whole := checkpoint(t, log, before)
	if whole || now.Seq == 0 || now.Seq >= before.Seq {
		t.Fatalf("%+v, %v after the last messages were removed; before %+v", now, whole, before)
	}
	if again, whole := checkpoint(t, log, now); !whole || again.Seq != now.Seq {
		t.Errorf("%+v, %v; nothing happened after %+v", again, whole, now)
	}
}
