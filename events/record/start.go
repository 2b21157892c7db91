package record

import (
	"context"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
)

// readTimeout bounds the read of a record that is known to exist.
const readTimeout = 10 * time.Second

// AddStart adds to the catalog's entry of a process when it started and with which pid, if the
// entry of an active process does not have it. It reads that from the record, whose last event is
// last. A record without it, or whose beginning was dropped, changes nothing.
func (l *Records) AddStart(ctx context.Context, ref Ref, sum *process.Summary, last process.Seq) error {
	const startSeq = 2 // the claim is before it
	if !sum.Active() || !sum.Started.IsZero() || last < startSeq {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	r := l.Read(ref, startSeq-1)
	defer r.Close()
	evs, err := r.Next(ctx, 0)
	if err != nil || len(evs) == 0 {
		if kind.Is(err, kind.Gone) {
			return nil
		}
		return err
	}
	if b, ok := evs[0].Body.(process.Started); ok {
		sum.PID, sum.Started = b.PID, evs[0].Time
	}
	return nil
}
