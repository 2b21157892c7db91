package reaper

import (
	"testing"
	"time"

	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/fleet"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/usage"
)

// The usage of a sandbox whose host is lost ends with the last known value, and that of a sandbox
// whose host stored none with zero. What a host has ended does not change.
func TestUsageOfALostHostIsTheLastKnown(t *testing.T) {
	w := newWorld(t, eventstest.Start(t))
	m := w.log.Meter()
	if err := m.Start(w.ctx); err != nil {
		t.Fatal(err)
	}
	measured, unmeasured, ended := w.sandbox(time.Now().Add(time.Hour), placed, running), w.sandbox(time.Now().Add(time.Hour), placed, running), w.sandbox(time.Now().Add(time.Hour), placed, running)
	never := w.sandbox(time.Now().Add(time.Hour), placed)
	now, forgotten := time.Now(), sandbox.NewID()
	for id, end := range map[sandbox.ID]bool{measured: false, ended: true, forgotten: false} {
		f := usage.New("t", string(id), usage.Sandbox, now).Measure(now, 7*time.Second)
		if end {
			f = f.End(now, false)
		}
		if err := m.Put(w.ctx, &f); err != nil {
			t.Fatal(err)
		}
	}
	w.lease(fleet.Lease{Host: "h", Epoch: 1, Gone: true})
	w.reap()
	for _, tt := range []struct {
		name string
		id   sandbox.ID
		cpu  time.Duration
		last bool
	}{{"measured", measured, 7 * time.Second, true}, {"never measured", unmeasured, 0, true}, {"ended by its host", ended, 7 * time.Second, false}} {
		f, err := m.Await(w.ctx, "t", string(tt.id), (*usage.Fact).Over)
		if err != nil || f.CPU() != tt.cpu || f.LastKnown != tt.last || f.Days[0].Sandboxes != 1 {
			t.Errorf("%s: %+v, %v", tt.name, f, err)
		}
	}
	if f, err := m.Await(w.ctx, "t", string(forgotten), (*usage.Fact).Over); err != nil || !f.LastKnown {
		t.Errorf("without a record: %+v, %v", f, err)
	}
	if f, ok := m.Fact("t", string(never)); ok {
		t.Errorf("a sandbox that never ran: %+v", f)
	}
}
