package shim

import (
	"testing"
	"time"
)

// A pipe is left to fill only between the pieces of one who prints much.
func TestGather(t *testing.T) {
	type read struct {
		after time.Duration // the one before
		bytes int
	}
	const wait = time.Millisecond
	flood := []read{{time.Second, 4 << 10}, {100 * time.Microsecond, 4 << 10}}
	for name, tc := range map[string]struct {
		wait  time.Duration
		reads []read
		pause time.Duration
		want  time.Duration
	}{
		"a first piece is read at once":     {wait, nil, 0, 0},
		"so is the next of a slow one":      {wait, []read{{time.Second, 64 << 10}}, 0, 0},
		"a flood gathers":                   {wait, flood, 50 * time.Microsecond, wait},
		"not after a pause":                 {wait, flood, 4 * time.Millisecond, 0},
		"small pieces never do":             {wait, []read{{time.Second, 10}, {time.Microsecond, 10}, {time.Microsecond, 10}}, 0, 0},
		"nor what comes at a moderate pace": {wait, append(flood, read{10 * time.Millisecond, 64 << 10}), 0, 0},
		"nobody waits where he need not":    {0, flood, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			g, now := gather{wait: tc.wait}, time.Unix(1000, 0)
			for _, r := range tc.reads {
				now = now.Add(r.after)
				g.got += r.bytes
				g.empty(now)
			}
			if got := g.due(now.Add(tc.pause)); got != tc.want {
				t.Errorf("waits %v, want %v", got, tc.want)
			}
		})
	}
}
