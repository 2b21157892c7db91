package catalog_test

import (
	"reflect"
	"testing"

	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/internal/finished"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
)

// A view that starts from a stored snapshot has the same processes as one that reads the whole
// catalog, also after the server was restarted.
func TestAViewStartsFromASnapshot(t *testing.T) {
	srv := eventstest.Start(t)
	log := eventstest.Open(t, srv)
	first, sbx := eventstest.View(t, log), sandbox.NewID()
	running := ended(t, log, sbx, 7, 0)
	for i := range finished.MaxSlots {
		ended(t, log, sbx, uint32(i), int64(i+1))
	}
	if err := first.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := first.SweepCatalog(t.Context()); err != nil {
		t.Fatal(err)
	}
	if stored, err := log.Views().List(t.Context()); err != nil || len(stored) != 2 {
		t.Fatalf("%d parts are stored, want a head and a chunk: %v", len(stored), err)
	}
	late := ended(t, log, sbx, 9, 1<<20)
	if err := first.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	log.Close()
	srv.Restart()
	second := eventstest.View(t, eventstest.Open(t, srv))
	for _, id := range []process.ID{running, late} {
		if _, _, ok := second.Process(id); !ok {
			t.Errorf("%s is missing", id)
		}
	}
	every := func(*process.Summary) bool { return true }
	got, want := second.Processes("", every), first.Processes("", every)
	if len(got) != finished.MaxSlots+2 || !reflect.DeepEqual(got, want) {
		t.Errorf("%d processes, want %d, or others", len(got), len(want))
	}
	if !reflect.DeepEqual(second.Counts(), first.Counts()) {
		t.Errorf("counts %v, want %v", second.Counts(), first.Counts())
	}
}
