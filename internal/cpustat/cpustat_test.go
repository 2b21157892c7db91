package cpustat

import (
	"math"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	for stat, want := range map[string]Times{
		"cpu  100 20 3 5000 600 40 7 30 90 10\ncpu0 1 2 3 4 5 6 7 8 9 10\n": {2 * time.Second, 56 * time.Second, 300 * time.Millisecond}, // guest time is part of user time
		"cpu  100 20 3 5000": {1230 * time.Millisecond, 50 * time.Second, 0},
		"intr 12\n":          {},
		"":                   {},
	} {
		if got := parse(stat); got != want {
			t.Errorf("%q: %v, want %v", stat, got, want)
		}
	}
}

func TestSince(t *testing.T) {
	if part := (Times{}).StolenPart(); part != 0 {
		t.Errorf("stolen part of no time is %v", part)
	}
	got := parse("cpu 7 0 0 50 0 0 0 5").Since(parse("cpu 4 0 0 10 0 0 0 3"))
	if want := (Times{Busy: 50 * time.Millisecond, Idle: 400 * time.Millisecond, Stolen: 20 * time.Millisecond}); got != want {
		t.Errorf("%v, want %v", got, want)
	}
	if part := got.StolenPart(); math.Abs(part-2./45) > 1e-9 {
		t.Errorf("stolen part is %v, want 2 of 45 ticks", part)
	}
}
