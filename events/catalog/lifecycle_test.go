package catalog

import (
	"testing"
	"time"

	"github.com/millrace/millrace/events/webhook"
)

// Marks are dropped by the hour, and none that is younger than the age.
func TestOldLifecycleMarksAreDropped(t *testing.T) {
	begin := time.Unix(0, 0)
	x := lifecycles{of: make(map[string][]mark)}
	for i := range 40 { // one per quarter of an hour, of two tenants in turn
		x.add([]string{"a", "b"}[i/20], webhook.At(uint64(i+1), 0), webhook.Created, begin.Add(time.Duration(i)*15*time.Minute), begin.Add(LifecycleAge))
	}
	tests := []struct {
		before   time.Duration
		a, b     int
		oldestOf string
	}{
		{0, 20, 20, "a"}, {59 * time.Minute, 20, 20, "a"}, {2 * time.Hour, 16, 20, "a"}, {2*time.Hour + time.Minute, 12, 20, "a"}, {7 * time.Hour, 0, 16, "b"},
	}
	for _, tt := range tests {
		x.forget(begin.Add(tt.before))
		if a, b := len(x.of["a"]), len(x.of["b"]); a != tt.a || b != tt.b {
			t.Errorf("before %s: %d and %d marks, want %d and %d", tt.before, a, b, tt.a, tt.b)
		}
		first := x.of[tt.oldestOf][0].position().Rev()
		if stored := time.Duration(first-1) * 15 * time.Minute; tt.before-stored > 2*stampEvery {
			t.Errorf("before %s: a mark of %s is left", tt.before, stored)
		}
	}
}

// A new view omits events that are too old already.
func TestOldLifecycleEventsAreNotAdded(t *testing.T) {
	x := lifecycles{of: make(map[string][]mark)}
	now := time.Unix(1e9, 0)
	x.add("a", webhook.At(1, 0), webhook.Created, now.Add(-LifecycleAge-1), now)
	x.add("a", webhook.At(2, 0), webhook.Created, now.Add(-LifecycleAge), now)
	if all := x.of["a"]; len(all) != 1 || all[0].position() != webhook.At(2, 0) {
		t.Errorf("%v", all)
	}
}

// A mark holds the position and the type of an event.
func TestMark(t *testing.T) {
	for _, typ := range webhook.Types() {
		m := markOf(webhook.At(1<<40, 255), typ)
		if m.position() != webhook.At(1<<40, 255) || m.eventType() != typ {
			t.Errorf("%s: %v %v", typ, m.position(), m.eventType())
		}
	}
}
