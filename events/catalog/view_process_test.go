package catalog_test

import (
	"testing"
	"time"

	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
)

// A reused pid refers to the younger process, whatever is written about the older one
// later, and in whichever order a view reads it.
func TestAPIDRefersToTheYoungestProcess(t *testing.T) {
	log := eventstest.Open(t, eventstest.Start(t))
	view, sbx := eventstest.View(t, log), sandbox.NewID()
	put := func(s process.Summary, rev uint64) uint64 {
		t.Helper()
		rev, err := log.PutSummary(t.Context(), &s, rev)
		if err != nil {
			t.Fatal(err)
		}
		return rev
	}
	old := process.Summary{ID: process.NewID(sbx), Tenant: "t", Host: eventstest.Host, PID: 7, Started: time.Unix(1, 0)}
	young := process.Summary{ID: process.NewID(sbx), Tenant: "t", Host: eventstest.Host, PID: 7, Started: time.Unix(2, 0)}
	rev := put(old, 0)
	put(young, 0)
	old.Ended, old.Exit = time.Unix(3, 0), &process.Exit{Cause: process.CauseExited}
	put(old, rev)
	if err := view.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, v := range map[string]*catalog.View{"that saw all": view, "that was just opened": eventstest.View(t, log)} {
		if got, ok := v.ProcessByPID(sbx, 7); !ok || got.ID != young.ID {
			t.Errorf("a view %s has %s, which ended: %v; want the running one", name, got.ID, !got.Active())
		}
	}
}
