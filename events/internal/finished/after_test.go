package finished

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/millrace/millrace/events/process"
)

// After returns each process that was not removed once, in the order of the entries, however often the
// search is interrupted.
func TestAfterReturnsProcessesInTheOrderOfTheirEntries(t *testing.T) {
	r, set := rand.New(rand.NewPCG(3, 4)), NewSet(64)
	var want []uint64
	for rev := uint64(1); len(want) < 500; rev += 1 + r.Uint64N(5) {
		s := process.Summary{ID: process.NewID("i"), Exit: &process.Exit{}}
		set.Put(&s, rev)
		if r.IntN(4) == 0 {
			set.Remove(s.ID)
			continue
		}
		want = append(want, rev)
	}
	for _, n := range []int{1, 7, 64, 1000} {
		var got []uint64
		for rev := uint64(0); ; {
			page := set.After(nil, rev, n)
			for i := range page {
				got = append(got, page[i].Rev())
			}
			if len(page) < n {
				break
			}
			rev = got[len(got)-1]
		}
		if !slices.Equal(got, want) {
			t.Errorf("pages of %d: got %d processes, want %d in order", n, len(got), len(want))
		}
	}
}
