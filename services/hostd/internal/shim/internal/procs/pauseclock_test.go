package procs

import (
	"testing"
	"time"
)

func TestPauseClock(t *testing.T) {
	var w pauseClock
	at := func(s float64) time.Time { return time.Unix(1000, 0).Add(time.Duration(s * float64(time.Second))) }
	steps := []struct {
		name string
		now  time.Time
		want time.Duration
	}{
		{"the first call", at(0), 0},
		{"regular ticks", at(0.5), 0},
		{"a busy host", at(2), 0},
		{"a pause", at(62), 59500 * time.Millisecond},
		{"counts once", at(62), 59500 * time.Millisecond},
		{"ticks again", at(62.5), 59500 * time.Millisecond},
		{"another pause", at(72.5), 69 * time.Second},
	}
	for _, s := range steps {
		if got := w.pausedTime(s.now); got != s.want {
			t.Errorf("%s: %v, want %v", s.name, got, s.want)
		}
	}
}
