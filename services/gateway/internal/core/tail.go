package core

import (
	"context"
	"time"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/record"
)

// Tailer reads the ends of records.
type Tailer interface {
	Tail(ctx context.Context, p Principal, id process.ID) (record.Tail, error)
}

const (
	// positionWait is how long an open record is read again before a position past its end is
	// refused.
	positionWait = 5 * time.Second
	positionPoll = 100 * time.Millisecond
)

// TailFrom returns the end of a record for a reader that continues after a position. A server
// of a cluster that has just become the leader, or no longer knows that it is not, can answer
// with an older end than a reader has seen. So if the position is past the end of a record
// that is open, the end is read again for a moment.
func TailFrom(ctx context.Context, t Tailer, p Principal, id process.ID, after process.Seq) (record.Tail, error) {
	tip, err := t.Tail(ctx, p, id)
	if err != nil || reached(&tip, after) {
		return tip, err
	}
	timer := time.NewTimer(positionWait)
	defer timer.Stop()
	tick := time.NewTicker(positionPoll)
	defer tick.Stop()
	for !reached(&tip, after) {
		select {
		case <-tick.C:
		case <-timer.C:
			return tip, nil
		case <-ctx.Done():
			return tip, ctx.Err()
		}
		if tip, err = t.Tail(ctx, p, id); err != nil {
			return tip, err
		}
	}
	return tip, nil
}

// reached reports whether what a tail says about a position is final: the record has reached
// it, has ended before it, or is known to be possibly longer.
func reached(tip *record.Tail, after process.Seq) bool {
	return after <= tip.Last || tip.Finished != nil || tip.Stale
}
