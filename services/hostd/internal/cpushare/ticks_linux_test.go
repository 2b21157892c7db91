package cpushare

import (
	"os"
	"testing"
	"time"

	"github.com/millrace/millrace/services/hostd/internal/schedtick"
)

// The test binary is the ticker when it is started as one.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == schedtick.Arg {
		os.Exit(schedtick.Main())
	}
	os.Exit(m.Run())
}

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
