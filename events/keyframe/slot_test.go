package keyframe

import (
	"slices"
	"testing"
)

// A record of any length has at most Slots frames, at equal distances, at least half as many once it has
// that many, and none is replaced before every second one is.
func TestFramesStayAtEqualDistances(t *testing.T) {
	stored := make(map[uint64]uint64) // slot to position
	for n := uint64(1); n < 64*Slots; n++ {
		at, ok := slot(n)
		if ok {
			if at >= Slots {
				t.Fatalf("slot(%d) = %d", n, at)
			}
			stored[at] = n
		}
		var all []uint64
		for _, p := range stored {
			all = append(all, p)
		}
		slices.Sort(all)
		level := 0
		for n>>level >= Slots {
			level++
		}
		last := uint64(0)
		for _, p := range all {
			// While a level is filled, the frames that it has not replaced yet are at half the distance.
			if d := p - last; d > 1<<level {
				t.Fatalf("after %d: no frame between %d and %d", n, last, p)
			}
			last = p
		}
		if n-last >= 1<<level {
			t.Fatalf("after %d: the last frame is at %d", n, last)
		}
	}
}
