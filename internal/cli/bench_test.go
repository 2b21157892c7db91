package cli

import (
	"testing"
	"time"
)

func TestBusyCPU(t *testing.T) {
	for stat, want := range map[string]time.Duration{
		"cpu  100 20 3 5000 600 40 7 30 90 10\ncpu0 1 2 3 4 5 6 7 8 9 10\n": 2 * time.Second, // neither idle nor iowait, nor a guest twice
		"cpu  100 20 3 5000": 1230 * time.Millisecond,
		"intr 12\n":          0,
		"":                   0,
	} {
		if got := busyCPU(stat); got != want {
			t.Errorf("%q: %v, want %v", stat, got, want)
		}
	}
}
