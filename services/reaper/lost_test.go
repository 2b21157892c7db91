package reaper

import (
	"testing"
	"time"

	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/fleet"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
)

// A host writes the end of a process to the catalog and dies before it writes the record. The
// record gets that end, even if a reaper ended another process minutes later by its own clock.
func TestAnEndInTheCatalogIsAddedToTheRecord(t *testing.T) {
	died := time.Now().Add(-2 * fleet.JustBefore)
	code := int32(3)
	exit := process.Exit{Code: &code, Cause: process.CauseExited}
	for _, tt := range []struct {
		name string
		ran  []process.Body // events of the other process
	}{
		{"it ran", begun},
		{"it had exited, and its children wrote", append(begun[:2:2], process.Exited{Exit: exit}, process.Wrote{Stream: process.Stdout, Data: []byte("x")})},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, eventstest.Start(t))
			sbx := w.sandbox(time.Now().Add(time.Hour), placed, running)
			noted := w.processAt(died, sbx, &exit, begun...)
			other := w.processAt(died, sbx, nil, tt.ran...)
			dead := w.gone()
			r := w.reaper()
			if err := r.end(w.ctx, dead["h"], other); err != nil { // the first one's record was unreachable
				t.Fatal(err)
			}
			w.sync()
			w.reaper().tearDown(w.ctx, dead)
			if !w.hasEnd(noted) {
				t.Error("the record of the process with an end in the catalog has none")
			}
			w.await(sbx, sandbox.PhaseLost)
		})
	}
}
