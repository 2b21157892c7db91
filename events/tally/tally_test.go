package tally_test

import (
	"context"
	"testing"

	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/tally"
)

// A gateway that starts gets the last counts of each run and period, and then new ones.
func TestFollow(t *testing.T) {
	log := eventstest.Open(t, eventstest.Start(t))
	s := log.Tally()
	put := func(run string, period int64, n int) {
		t.Helper()
		if err := s.Put(t.Context(), &tally.Counts{Run: run, Period: period, ByKey: map[string]int{"k": n}}); err != nil {
			t.Fatal(err)
		}
	}
	put("A", 1, 1)
	put("A", 1, 2)
	put("B", 1, 3)
	put("A", 2, 4)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	got := map[string]map[int64]int{"A": {}, "B": {}}
	n := 0
	err := s.Follow(ctx, func(c *tally.Counts) {
		got[c.Run][c.Period] = c.ByKey["k"]
		if n++; n == 3 {
			put("B", 2, 5)
		}
		if n == 4 {
			cancel()
		}
	})
	if err == nil || got["A"][1] != 2 || got["A"][2] != 4 || got["B"][1] != 3 || got["B"][2] != 5 {
		t.Errorf("%v, %v", got, err)
	}
}
