package events_test

import (
	"testing"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
)

func TestLoadTailsReturnsTheEndOfEachRecord(t *testing.T) {
	log := eventstest.Open(t, eventstest.Start(t))
	var ids []process.ID
	want := map[process.ID]process.Seq{}
	for i := range 300 { // more than one request's worth
		ref := newRef()
		ids = append(ids, ref.ID)
		if n := i % 4; n > 0 {
			appendAll(t, log.Writer(ref, 3), script(9)[:n], 1)
			want[ref.ID] = process.Seq(n)
		}
	}
	over := newRef()
	ids = append(ids, over.ID)
	appendAll(t, log.Writer(over, 3), script(9), 4)
	want[over.ID] = 9
	got, err := log.LoadTails(t.Context(), testHost, ids)
	if err != nil || len(got) != len(want) {
		t.Fatalf("%d tails, %v; want %d", len(got), err, len(want))
	}
	for id, last := range want {
		if g := got[id]; g.Last != last || g.Host != testHost || g.Epoch != 3 || (g.Finished != nil) != (id == over.ID) || !g.Stale {
			t.Errorf("%s: %+v, want event %d", id, g, last)
		}
	}
}

func TestAWriterThatAssumesAnOldTailIsFenced(t *testing.T) {
	log := eventstest.Open(t, eventstest.Start(t))
	ref, all := newRef(), script(6)
	before := log.Writer(ref, 1)
	appendAll(t, before, all[:2], 1)
	tails, err := log.LoadTails(t.Context(), testHost, []process.ID{ref.ID})
	if err != nil {
		t.Fatal(err)
	}
	appendAll(t, before, all[2:4], 1)
	w := log.Writer(ref, 2)
	w.AssumeTail(tails[ref.ID])
	if err := w.Append(t.Context(), all[2:5]); !kind.Is(err, kind.Fenced) {
		t.Fatalf("%v, want Fenced", err)
	}
	if tail, err := w.Recover(t.Context()); err != nil || tail.Last != 4 {
		t.Fatalf("%+v, %v; want event 4", tail, err)
	}
	if err := w.Append(t.Context(), all[4:]); err != nil {
		t.Fatal(err)
	}
	if got := readAll(t, log.Read(ref, 0), 0); len(got) != len(all) {
		t.Errorf("%d events, want %d", len(got), len(all))
	}
	var none events.Tail
	fresh := log.Writer(newRef(), 1)
	if fresh.AssumeTail(none); fresh.Last() != 0 {
		t.Errorf("it continues after event %d", fresh.Last())
	}
}
