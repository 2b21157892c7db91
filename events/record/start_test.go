package record_test

import (
	"testing"
	"time"

	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/process"
)

// An entry of the catalog without a start gets the one that the record has.
func TestAddStart(t *testing.T) {
	log := eventstest.Open(t, eventstest.Start(t))
	all := eventstest.Script(4)
	failed := []process.Event{all[0], {Seq: 2, Time: all[0].Time, Body: process.Failed{Message: "no such program"}}}
	other := time.Unix(9, 0)
	tests := []struct {
		name string
		evs  []process.Event
		sum  process.Summary
		pid  uint32
		at   time.Time
	}{
		{"started", all[:2], process.Summary{}, 42, all[1].Time},
		{"with an end", all, process.Summary{}, 42, all[1].Time},
		{"claimed only", all[:1], process.Summary{}, 0, time.Time{}},
		{"failed", failed, process.Summary{}, 0, time.Time{}},
		{"known", all[:2], process.Summary{PID: 5, Started: other}, 5, other},
		{"ended in the catalog", all[:2], process.Summary{Exit: &process.Exit{}}, 0, time.Time{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ref := eventstest.NewRef()
			w := log.Writer(ref, 1)
			eventstest.AppendAll(t, w, tt.evs, 1)
			if err := log.AddStart(t.Context(), ref, &tt.sum, w.Last()); err != nil {
				t.Fatal(err)
			}
			if tt.sum.PID != tt.pid || !tt.sum.Started.Equal(tt.at) {
				t.Errorf("got pid %d at %v, want %d at %v", tt.sum.PID, tt.sum.Started, tt.pid, tt.at)
			}
		})
	}
}
