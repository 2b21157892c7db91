package record_test

import (
	"testing"

	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/process"
)

// outlived returns a record whose process exited with 3 and left children that print the
// given number of times.
func outlived(prints int) []process.Event {
	code := int32(3)
	all := eventstest.Script(4)[:2]
	all = append(all, process.Event{Body: process.Exited{Exit: process.Exit{Code: &code, Cause: process.CauseExited}}})
	for i := range prints {
		all = append(all, process.Event{Body: process.Wrote{Stream: process.Stdout, Offset: uint64(i), Data: []byte("x")}})
	}
	for i := range all {
		all[i].Seq, all[i].Time = process.Seq(i+1), all[0].Time
	}
	return all
}

// checkExit checks that x is the exit of outlived. label names its source.
func checkExit(t *testing.T, label string, x *process.Exit) {
	t.Helper()
	if x == nil || x.Code == nil || *x.Code != 3 {
		t.Errorf("%s has the exit %+v", label, x)
	}
}

// However much the children of an ended process print, each message after its end contains
// its exit.
func TestLaterMessagesRepeatTheExit(t *testing.T) {
	log := eventstest.Open(t, eventstest.Start(t))
	ref, all := eventstest.NewRef(), outlived(300)
	w := log.Writer(ref, 1)
	eventstest.AppendAll(t, w, all[:2], 1)
	if w.Exited() != nil {
		t.Error("Exited is set before the event is stored")
	}
	eventstest.AppendAll(t, w, all[2:], 1)
	checkExit(t, "its writer", w.Exited())
	next := log.Writer(ref, 2)
	if tail, err := next.Recover(t.Context()); err != nil || tail.Last != process.Seq(len(all)) {
		t.Fatalf("%+v, %v", tail, err)
	}
	checkExit(t, "the next run", next.Exited())
	tails, err := log.LoadTails(t.Context(), eventstest.Host, []process.ID{ref.ID})
	if err != nil {
		t.Fatal(err)
	}
	follower := log.Writer(ref, 3)
	follower.AssumeTail(tails[ref.ID])
	more := process.Event{Seq: process.Seq(len(all)) + 1, Time: all[0].Time, Body: process.Wrote{Stream: process.Stdout, Offset: 300, Data: []byte("x")}}
	eventstest.AppendAll(t, follower, []process.Event{more}, 1)
	last := log.Writer(ref, 4)
	if _, err := last.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	checkExit(t, "the run after that", last.Exited())
}

// An abandoned append may have stored the Exited, and the next append does not have it.
func TestAnExitOfAnAbandonedAppendIsFound(t *testing.T) {
	srv := eventstest.Start(t)
	log := eventstest.Open(t, srv)
	ref, all := eventstest.NewRef(), outlived(1)
	w := log.Writer(ref, 1)
	eventstest.AppendAll(t, w, all[:1], 1)
	lost := log.Writer(ref, 1)
	if _, err := lost.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventstest.AppendAll(t, lost, all[1:], len(all)) // w does not learn of it
	if err := w.Append(t.Context(), all[1:2]); err != nil {
		t.Fatal(err)
	}
	checkExit(t, "its writer", w.Exited())
}
