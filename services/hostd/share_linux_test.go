package hostd

import (
	"testing"
	"time"
)

// The ticker runs while a sandbox is deprioritized, and a while after.
func TestTickerFollowsDeprioritizedSandboxes(t *testing.T) {
	ticks, now := ticks{wanted: true}, time.Unix(1000, 0)
	defer ticks.stop()
	for i, tt := range []struct {
		after         time.Duration
		deprioritized bool
		want          bool
	}{
		{0, false, false},
		{0, true, true},
		{tickOn, true, true},
		{tickOn, false, true},
		{time.Millisecond, false, false},
		{0, true, true},
	} {
		now = now.Add(tt.after)
		if err := ticks.follow(t.Context(), now, tt.deprioritized); err != nil || (ticks.ticker != nil) != tt.want {
			t.Fatalf("%d: %v, runs %v, want %v", i, err, ticks.ticker != nil, tt.want)
		}
	}
	unwanted := ticks
	unwanted.stop()
	unwanted.wanted = false
	if err := unwanted.follow(t.Context(), now, true); err != nil || unwanted.ticker != nil {
		t.Error("the ticker runs where it is not needed")
	}
}
