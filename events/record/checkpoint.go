package record

import (
	"context"
	"time"

	"github.com/millrace/millrace/events/fleet"
	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/internal/streams"
)

// Checkpoint compares the stream of a host's records with an earlier checkpoint: whole reports that
// everything is there that was stored up to it. A damaged disk takes messages from the stream, or
// its end, which later messages then replace. The result is a checkpoint of now, zero if the stream
// is empty. Checkpoint makes a single attempt.
func (l *Records) Checkpoint(ctx context.Context, host string, earlier fleet.Checkpoint) (now fleet.Checkpoint, whole bool, err error) {
	stream, at := streams.Out(streams.ShardOf(host, l.conn.Shards())), time.Now()
	st, err := l.conn.Stream(ctx, stream)
	if err != nil {
		return fleet.Checkpoint{}, false, store.Unavailable("read", stream, err)
	}
	last, stored, missing := st.Extent()
	if last > 0 {
		now = fleet.Checkpoint{Seq: last, Stored: stored, At: at, Missing: missing}
	}
	if earlier.Seq == 0 || earlier.Missing != missing {
		return now, false, nil
	}
	m, ok, err := l.conn.LeaderGet(ctx, stream, store.GetRequest{Seq: earlier.Seq})
	return now, ok && m.Time.Equal(earlier.Stored), err
}
