package waiting

import (
	"context"
	"time"
)

// Sleep waits for d, or until ctx ends. It reports whether it waited for d.
func Sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Delay returns the delay after failed attempt number try, counted from 0. It starts at first,
// which must be positive, and doubles with each attempt, up to most.
func Delay(try int, first, most time.Duration) time.Duration {
	for range try {
		if first *= 2; first >= most {
			break
		}
	}
	return min(first, most)
}

// Notify wakes the receiver of c, which must have a buffer of one. It does not wait: if the
// receiver is busy, it finds the value later, and one value stands for many calls.
func Notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
