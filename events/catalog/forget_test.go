package catalog_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
)

// ended adds a process to the catalog that ended at the given second; 0: it is running.
func ended(t testing.TB, log *events.Log, sbx sandbox.ID, pid uint32, at int64) process.ID {
	t.Helper()
	code := int32(3)
	s := process.Summary{
		ID: process.NewID(sbx), Tenant: "t", Host: eventstest.Host, PID: pid, Started: time.Unix(1, 0),
		Spec: process.Spec{Cmd: "/bin/sh", Args: []string{"-c", "exit 3"}, User: "user"},
	}
	if at != 0 {
		s.Ended, s.Exit = time.Unix(at, 0), &process.Exit{Code: &code, Cause: process.CauseExited}
	}
	if _, err := log.PutSummary(t.Context(), &s, 0); err != nil {
		t.Fatal(err)
	}
	return s.ID
}

func TestAViewDropsOldProcesses(t *testing.T) {
	log := eventstest.Open(t, eventstest.Start(t))
	view, busy, quiet := eventstest.View(t, log), sandbox.NewID(), sandbox.NewID()
	old := []process.ID{ended(t, log, busy, 7, 5), ended(t, log, busy, 8, 6), ended(t, log, quiet, 7, 5)}
	kept := []process.ID{ended(t, log, busy, 7, 20), ended(t, log, busy, 9, 0)}
	if err := view.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	view.Forget(time.Unix(10, 0))
	for _, id := range old {
		if _, _, ok := view.Process(id); ok {
			t.Errorf("%s is still in the view", id)
		}
	}
	all := func(*process.Summary) bool { return true }
	var got []process.ID
	for _, s := range view.Processes(busy, all) {
		got = append(got, s.ID)
	}
	if fmt.Sprint(got) != fmt.Sprint(kept) || len(view.Processes(quiet, all)) != 0 {
		t.Errorf("%v are left of the one sandbox, want %v, and %v of the other", got, kept, view.Processes(quiet, all))
	}
	if s, ok := view.ProcessByPID(busy, 7); !ok || s.ID != kept[0] {
		t.Errorf("pid 7 is %s, want the newer one", s.ID)
	}
	if _, ok := view.ProcessByPID(busy, 8); ok {
		t.Error("the pid of a dropped process is found")
	}
}
