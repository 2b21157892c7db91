package record

import (
	"context"
	"time"

	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
)

// moment is a message of a record and the time of its first event.
type moment struct {
	span
	at time.Time
}

// SeqsAround finds the point in a record that corresponds to a time: all events up to seq before
// are earlier, and all after seq after are not, as far as the record's clock is monotonic.
// The events between them are in one message. It takes a handful of reads and returns
// NotFound if the record does not exist.
func (l *Records) SeqsAround(ctx context.Context, ref Ref, at time.Time) (before, after process.Seq, err error) {
	stream, subject := streams.Out(streams.ShardOf(ref.Host, l.conn.Shards())), ref.subject(l.conn.Shards())
	lo, err := l.momentAt(ctx, stream, store.GetRequest{Seq: 1, Next: subject})
	if err != nil {
		return 0, 0, err
	}
	if !lo.at.Before(at) {
		return lo.first - 1, lo.first - 1, nil
	}
	hi, err := l.momentAt(ctx, stream, store.GetRequest{Last: subject})
	if err != nil {
		return 0, 0, err
	}
	if hi.at.Before(at) {
		return hi.first - 1, hi.last, nil
	}
	for top := hi.rev; lo.rev+1 < top; { // no message of the record lies in [top, hi.rev)
		half := lo.rev + (top-lo.rev)/2
		mid, err := l.momentAt(ctx, stream, store.GetRequest{Seq: half, Next: subject})
		switch {
		case kind.Is(err, kind.NotFound):
			return lo.first - 1, hi.first - 1, nil // a hole, which the reader handles
		case err != nil:
			return 0, 0, err
		case mid.rev >= hi.rev:
			top = half
		case mid.at.Before(at):
			lo = mid
		default:
			hi, top = mid, mid.rev
		}
	}
	return lo.first - 1, hi.first - 1, nil
}

func (l *Records) momentAt(ctx context.Context, stream string, req store.GetRequest) (moment, error) {
	b, m, err := l.readBatch(ctx, stream, req)
	if err != nil {
		return moment{}, err
	}
	at := m.Time // of a message with unknown frames only
	if len(b.Events) > 0 {
		at = b.Events[0].Time
	}
	return moment{spanOf(&b, m.Seq), at}, nil
}
