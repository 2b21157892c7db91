package record_test

import (
	"testing"

	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/record"
)

func TestLoadTailsReturnsTheEndOfEachRecord(t *testing.T) {
	log := eventstest.Open(t, eventstest.Start(t))
	var ids []process.ID
	want := map[process.ID]process.Seq{}
	for i := range 300 { // more than one request's worth
		ref := eventstest.NewRef()
		ids = append(ids, ref.ID)
		if n := i % 4; n > 0 {
			eventstest.AppendAll(t, log.Writer(ref, 3), eventstest.Script(9)[:n], 1)
			want[ref.ID] = process.Seq(n)
		}
	}
	over := eventstest.NewRef()
	ids = append(ids, over.ID)
	eventstest.AppendAll(t, log.Writer(over, 3), eventstest.Script(9), 4)
	want[over.ID] = 9
	got, err := log.LoadTails(t.Context(), eventstest.Host, ids)
	if err != nil || len(got) != len(want) {
		t.Fatalf("%d tails, %v; want %d", len(got), err, len(want))
	}
	for id, last := range want {
		if g := got[id]; g.Last != last || g.Host != eventstest.Host || g.Epoch != 3 || (g.Finished != nil) != (id == over.ID) || !g.Stale {
			t.Errorf("%s: %+v, want event %d", id, g, last)
		}
	}
}

func TestAWriterThatAssumesAnOldTailIsFenced(t *testing.T) {
	log := eventstest.Open(t, eventstest.Start(t))
	ref, all := eventstest.NewRef(), eventstest.Script(6)
	before := log.Writer(ref, 1)
	eventstest.AppendAll(t, before, all[:2], 1)
	tails, err := log.LoadTails(t.Context(), eventstest.Host, []process.ID{ref.ID})
	if err != nil {
		t.Fatal(err)
	}
	eventstest.AppendAll(t, before, all[2:4], 1)
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
	if got := eventstest.ReadAll(t, log.Read(ref, 0), 0); len(got) != len(all) {
		t.Errorf("%d events, want %d", len(got), len(all))
	}
	var none record.Tail
	fresh := log.Writer(eventstest.NewRef(), 1)
	if fresh.AssumeTail(none); fresh.Last() != 0 {
		t.Errorf("it continues after event %d", fresh.Last())
	}
}
