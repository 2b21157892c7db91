package rate

import (
	"fmt"
	"testing"
	"time"
)

// B-034: requests count for 15 minutes, by key.
func TestAdd(t *testing.T) {
	c, start := New(), time.Unix(1_800_000_000, 0)
	steps := []struct {
		after time.Duration
		key   string
		want  int
	}{
		{0, "a", 2},
		{time.Minute, "a", 1},
		{2 * time.Minute, "b", 2},
		{2 * time.Minute, "a", 0},
		{3 * time.Minute, "a", -1},
		{0, "a", -1}, // the clock stepped back
		{15 * time.Minute, "a", -1},
		{15*time.Minute + bucket, "a", 0},  // the first one is forgotten
		{16*time.Minute + bucket, "a", 0},  // the second one
		{16*time.Minute + bucket, "a", -1}, // that was not the third
		{time.Hour, "a", 2},
	}
	for _, s := range steps {
		if got := c.Add(s.key, start.Add(s.after), 3); got != s.want {
			t.Errorf("%s after %v: %d, want %d", s.key, s.after, got, s.want)
		}
	}
}

func TestIdleKeysAreRemoved(t *testing.T) {
	c, start := New(), time.Unix(1_800_000_000, 0)
	for i := range 100 {
		c.Add(fmt.Sprint(i), start, 1)
	}
	c.Add("x", start.Add(2*Window), 1)
	if len(c.byKey) != 1 {
		t.Errorf("%d keys, want 1", len(c.byKey))
	}
}
