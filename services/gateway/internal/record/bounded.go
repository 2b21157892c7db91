package record

import (
	"context"
	"io"
	"math"
	"time"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/stream"
)

// bounded ends a Source early: after the event last, or after left events.
type bounded struct {
	stream.Source
	at   process.Seq // the last event returned
	last process.Seq
	left int
}

func bound(src stream.Source, after, last process.Seq, opt Options) stream.Source {
	b := &bounded{Source: src, at: after, last: last, left: opt.Limit}
	if opt.Follow {
		b.last = math.MaxUint64
	}
	if opt.Limit == 0 {
		b.left = math.MaxInt
	}
	return b
}

// After returns the seq of the last event returned.
func (b *bounded) After() process.Seq { return b.at }

// Next returns io.EOF together with the last events.
func (b *bounded) Next(ctx context.Context, idle time.Duration) ([]process.Event, error) {
	if b.atEnd() {
		return nil, io.EOF
	}
	batch, err := b.Source.Next(ctx, idle)
	batch = batch[:min(len(batch), b.left)]
	for len(batch) > 0 && batch[len(batch)-1].Seq > b.last {
		batch = batch[:len(batch)-1]
	}
	b.left -= len(batch)
	if len(batch) > 0 {
		b.at = batch[len(batch)-1].Seq
	}
	if err == nil && b.atEnd() {
		err = io.EOF
	}
	return batch, err
}

func (b *bounded) atEnd() bool { return b.left == 0 || b.at >= b.last }
