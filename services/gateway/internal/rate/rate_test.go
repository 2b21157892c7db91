package rate

import (
	"fmt"
	"testing"
	"time"
)

// in is a limit for the whole window.
func in(n int) Limit { return Limit{n, Window} }

// AMB-19: a limit per minute, and how long to wait.
func TestAPeriodIsShorterThanTheWindow(t *testing.T) {
	c, start := New(), time.Unix(1_800_000_000, 0) // the beginning of a bucket
	steps := []struct {
		after time.Duration
		want  int
		wait  time.Duration
	}{
		{0, 2, 0},
		{20 * time.Second, 1, 0},
		{21 * time.Second, 0, 0},
		{22 * time.Second, -1, 53 * time.Second}, // until the first one is forgotten, after 75 s
		{74*time.Second + 999*time.Millisecond, -1, time.Second},
		{75 * time.Second, 0, 0},
		{76 * time.Second, -1, 14 * time.Second}, // the two of the second bucket are forgotten at 90 s
		{90 * time.Second, 1, 0},
		{10 * time.Minute, 2, 0},
	}
	for _, s := range steps {
		left, wait := c.Add("a", start.Add(s.after), Limit{3, time.Minute})
		if left != s.want || wait != s.wait {
			t.Errorf("after %v: %d, wait %v; want %d, %v", s.after, left, wait, s.want, s.wait)
		}
	}
	// What other gateways have counted beyond the limit must be forgotten, too.
	number := start.Add(20*time.Minute).UnixNano() / int64(bucket)
	c.Merge("run", Bucket{number - 1, map[string]int{"b": 2}}, start.Add(20*time.Minute))
	c.Merge("run", Bucket{number, map[string]int{"b": 5}}, start.Add(20*time.Minute))
	if left, wait := c.Add("b", start.Add(20*time.Minute), Limit{3, time.Minute}); left != -1 || wait != 75*time.Second {
		t.Errorf("%d, %v", left, wait)
	}
}

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
		if got, _ := c.Add(s.key, start.Add(s.after), in(3)); got != s.want {
			t.Errorf("%s after %v: %d, want %d", s.key, s.after, got, s.want)
		}
	}
}

func TestIdleKeysAreRemoved(t *testing.T) {
	c, start := New(), time.Unix(1_800_000_000, 0)
	for i := range 100 {
		c.Add(fmt.Sprint(i), start, in(1))
	}
	c.Add("x", start.Add(2*Window), in(1))
	if len(c.byKey) != 1 {
		t.Errorf("%d keys, want 1", len(c.byKey))
	}
}

// B-034: what other gateways count is counted once, in its bucket, however often it is passed on.
func TestMerge(t *testing.T) {
	here, there, start := New(), New(), time.Unix(1_800_000_000, 0)
	pass := func(from, to *Counts, now time.Time) {
		for _, b := range from.Changed() {
			to.Merge("run", b, now)
			to.Merge("run", b, now)
		}
	}
	for range 3 {
		there.Add("a", start, in(10))
	}
	pass(there, here, start)
	there.Add("a", start, in(10))
	pass(there, here, start)
	if got, _ := here.Add("a", start, in(10)); got != 5 {
		t.Errorf("%d left after 4 requests there and one here, want 5", got)
	}
	if got := there.Changed(); len(got) != 0 {
		t.Errorf("unchanged buckets %v", got)
	}
	there.Again(start.UnixNano() / int64(bucket))
	if got := there.Changed(); len(got) != 1 || got[0].ByKey["a"] != 4 {
		t.Errorf("again: %v", got)
	}
	later := start.Add(Window + bucket)
	if got, _ := here.Add("a", later, in(10)); got != 9 {
		t.Errorf("%d left after the window, want 9", got)
	}
	here.Merge("run", Bucket{start.UnixNano() / int64(bucket), map[string]int{"a": 9}}, later)
	here.Merge("run", Bucket{later.UnixNano()/int64(bucket) + 2, map[string]int{"a": 9}}, later)
	if got, _ := here.Add("a", later, in(10)); got != 8 {
		t.Errorf("%d left after counts outside of the window, want 8", got)
	}
	here.Add("b", later.Add(2*Window), in(1))
	if len(here.own) != 1 || len(here.merged) != 0 {
		t.Errorf("old buckets are left: %v, %v", here.own, here.merged)
	}
}
