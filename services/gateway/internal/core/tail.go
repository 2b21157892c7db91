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
	if err != nil {
		return tip, err
	}
	return AwaitTail(ctx, t, p, id, tip, positionWait, positionPoll, func(tip *record.Tail) bool {
		return after <= tip.Last || tip.Finished != nil || tip.Stale
	})
}

// AwaitTail reads the end of a record, which was tip, every poll until done is true. It returns
// the last end that it read, also when most has passed.
func AwaitTail(ctx context.Context, t Tailer, p Principal, id process.ID, tip record.Tail, most, poll time.Duration, done func(*record.Tail) bool) (record.Tail, error) {
	if done(&tip) {
		return tip, nil
	}
	timer := time.NewTimer(most)
	defer timer.Stop()
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for !done(&tip) {
		select {
		case <-tick.C:
		case <-timer.C:
			return tip, nil
		case <-ctx.Done():
			return tip, ctx.Err()
		}
		var err error
		if tip, err = t.Tail(ctx, p, id); err != nil {
			return tip, err
		}
	}
	return tip, nil
}
