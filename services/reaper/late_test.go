package reaper

import (
	"testing"
	"time"

	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/fleet"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/record"
)

// Of a dead host's processes that ended long ago, those whose entries are newer than its checkpoint are checked.
func TestALateEntryOfADeadHostIsChecked(t *testing.T) {
	w := newWorld(t, eventstest.Start(t))
	three := int32(3)
	exit := process.Exit{Code: &three, Cause: process.CauseExited}
	sbx := w.sandbox(time.Now().Add(time.Hour), placed, running)
	w.process(sbx, &exit, append(begun[:2:2], process.Finished{Exit: exit})...)
	if err := w.view.Sync(w.ctx); err != nil {
		t.Fatal(err)
	}
	c, _, err := w.log.Checkpoint(w.ctx, "h", fleet.Checkpoint{})
	if err != nil {
		t.Fatal(err)
	}
	c.Rev = w.view.ProcessesRev()
	late := w.processAt(time.Now().Add(-time.Hour), sbx, nil, begun...)
	sum, rev, err := w.log.Summary(w.ctx, record.Ref{Host: "h", ID: late})
	if err != nil {
		t.Fatal(err)
	}
	sum.Exit, sum.Ended, sum.Last = &exit, time.Now().Add(-time.Hour), process.Seq(len(begun)+1)
	if _, err := w.log.PutSummary(w.ctx, &sum, rev); err != nil {
		t.Fatal(err)
	}
	w.process(sbx, &exit, append(begun[:2:2], process.Finished{Exit: exit})...) // newer: only its end may be on its way
	w.lease(fleet.Lease{Host: "h", Epoch: 1, TTL: 200 * time.Millisecond, Checkpoint: c})
	w.reap()
	if x := w.finish(late); x.Code == nil || *x.Code != 3 {
		t.Errorf("ended as %+v, want 3", x)
	}
}
