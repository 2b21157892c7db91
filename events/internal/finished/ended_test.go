package finished

import (
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/events/process"
)

// The search returns the processes that ended since a time and were not removed, chunk by chunk.
func TestEnded(t *testing.T) {
	const n = 50
	set, ids := NewSet(8), make([]process.ID, n)
	at := func(i int) time.Time { return time.Unix(1000, 0).Add(time.Duration(i^3) * time.Second) } // not quite in order
	for i := range n {
		ids[i] = process.NewID("i")
		set.Put(&process.Summary{ID: ids[i], Started: time.Unix(900, 0), Ended: at(i), Exit: &process.Exit{}}, uint64(10*i+1))
	}
	set.Remove(ids[n-2])
	for _, from := range []int{0, 20, n - 3, n + 4} {
		since := time.Unix(1000, 0).Add(time.Duration(from) * time.Second)
		var want, got []uint64
		for i := range n {
			if i != n-2 && !at(i).Before(since) {
				want = append(want, uint64(10*i+1))
			}
		}
		var items []Item
		for rev := uint64(0); ; {
			items, rev = set.Ended(items[:0], rev, func(_ uint64, ended time.Time) bool { return !ended.Before(since) })
			for i := range items {
				got = append(got, items[i].Rev())
			}
			if rev == 0 {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("since %d: %v, want %v", from, got, want)
		}
	}
}
