package output

import (
	"testing"
	"time"
)

// TestCoalesce: reading waits only between pieces of fast output.
func TestCoalesce(t *testing.T) {
	type read struct {
		after time.Duration // since the previous read
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
		"a first piece is read at once":             {wait, nil, 0, 0},
		"slow output is read at once":               {wait, []read{{time.Second, 64 << 10}}, 0, 0},
		"fast output is coalesced":                  {wait, flood, 50 * time.Microsecond, wait},
		"output after a pause is read at once":      {wait, flood, 4 * time.Millisecond, 0},
		"small pieces are read at once":             {wait, []read{{time.Second, 10}, {time.Microsecond, 10}, {time.Microsecond, 10}}, 0, 0},
		"output at a moderate rate is read at once": {wait, append(flood, read{10 * time.Millisecond, 64 << 10}), 0, 0},
		"the zero value never waits":                {0, flood, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			g, now := coalescer{wait: tc.wait}, time.Unix(1000, 0)
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
