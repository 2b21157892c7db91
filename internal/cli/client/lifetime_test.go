package client

import (
	"math"
	"testing"
	"time"
)

func TestTimesAreRoundedAwayFromZero(t *testing.T) {
	for d, want := range map[time.Duration]int64{
		0: 0, 1: 1, 500 * time.Microsecond: 1, time.Millisecond: 1, time.Millisecond + 1: 2, time.Second: 1000,
		-1: -1, -time.Second: -1000, math.MaxInt64: math.MaxInt64/1_000_000 + 1,
	} {
		if got := Ceil(d, time.Millisecond); got != want {
			t.Errorf("ceil(%v) = %d ms; want %d", d, got, want)
		}
	}
}
