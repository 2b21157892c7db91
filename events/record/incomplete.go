package record

import (
	"context"
	"slices"
	"time"

	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
)

const (
	// incompleteBatch is how many records [Records.Incomplete] checks between two pauses.
	incompleteBatch   = 4 * store.BatchSize
	incompleteBackoff = 3 // as backoff counts: 8 ms
)

// Incomplete calls found for each process in all whose record lacks the end that its entry in
// the catalog has. All are ended processes of host. A record that retention has dropped
// is not incomplete. Incomplete reads the ends of many records at once and pauses in between, so that
// it may run beside client requests.
func (l *Records) Incomplete(ctx context.Context, host string, all []process.Summary, found func(*process.Summary)) error {
	for some := range slices.Chunk(all, incompleteBatch) {
		ids := make([]process.ID, len(some))
		for i := range some {
			ids[i] = some[i].ID
		}
		tails, err := l.LoadTails(ctx, host, ids)
		if err != nil {
			return err
		}
		for i := range some {
			tail, ok := tails[some[i].ID]
			if !ok {
				if tail, err = l.Tail(ctx, Ref{Host: host, ID: some[i].ID}); err != nil && !kind.Is(err, kind.NotFound) {
					return err
				}
			}
			short := tail.Finished == nil
			if tail.Last == 0 {
				if short, err = l.Lost(ctx, &some[i]); err != nil {
					return err
				}
			}
			if short {
				found(&some[i])
			}
		}
		if !store.Backoff(ctx, incompleteBackoff) {
			return ctx.Err()
		}
	}
	return nil
}

// Lost reports whether the record of an ended process, of which nothing is stored, was
// lost: retention did not drop it, since older output is kept.
func (l *Records) Lost(ctx context.Context, s *process.Summary) (bool, error) {
	if s.Active() || s.Last == 0 {
		return false, nil
	}
	m, ok, err := l.conn.RetryLeaderGet(ctx, streams.Out(streams.ShardOf(s.Host, l.conn.Shards())), store.GetRequest{Seq: 1, Next: ">"})
	if err != nil {
		return false, err
	}
	if !ok { // the stream is empty, although younger messages than this would be kept
		m.Time = time.Now().Add(-l.retention)
	}
	return s.Ended.After(m.Time), nil
}
