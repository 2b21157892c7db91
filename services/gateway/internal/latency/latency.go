package latency

import (
	"context"
	"time"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/record"
)

// Observer receives durations in seconds, as a histogram does.
type Observer interface{ Observe(seconds float64) }

// Observers receive the latencies of the operations. A nil field observes nothing.
type Observers struct {
	Start     Observer // time from a request to start a process until it runs
	FirstByte Observer // time from a request to start a process until its first output
	Create    Observer // time from a request to create a sandbox until it runs
	Resume    Observer // time from a request to resume a paused sandbox until it runs
}

// Since reports the time since a moment to o, which may be nil.
func Since(o Observer, begin time.Time) {
	if o != nil {
		o.Observe(time.Since(begin).Seconds())
	}
}

// Reader reads the record of a process, and observes the time from the request for it until
// it runs and until its first output.
type Reader struct {
	*record.Reader
	to        *Observers // nil: nothing is left to observe
	requested time.Time
}

// NewReader returns a reader of a process that was requested at a moment. If to is nil, it
// observes nothing.
func NewReader(r *record.Reader, to *Observers, requested time.Time) *Reader {
	return &Reader{r, to, requested}
}

// Next implements the method of record.Reader.
func (r *Reader) Next(ctx context.Context, idle time.Duration) ([]process.Event, error) {
	batch, err := r.Reader.Next(ctx, idle)
	if r.to != nil {
		r.observe(batch)
	}
	return batch, err
}

func (r *Reader) observe(batch []process.Event) {
	for i := range batch {
		if _, ok := batch[i].Body.(process.Started); ok {
			Since(r.to.Start, r.requested)
		}
		if _, ok := batch[i].Body.(process.Wrote); ok {
			Since(r.to.FirstByte, r.requested)
			r.to = nil
			return
		}
	}
}
