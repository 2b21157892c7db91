package record

import (
	"context"
	"time"

	"github.com/millrace/millrace/events/fleet"
	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/internal/streams"
)

// maxUnreadable is how many messages at the end of a stream may be missing for a checkpoint before them.
const maxUnreadable = 32

// Checkpoint compares the stream of a host's records with an earlier checkpoint: whole reports that
// everything is there that was stored up to it. A damaged disk takes messages from the stream, or
// its end, which later messages then replace. The result is a checkpoint of now, zero if the stream
// has no readable message at its end. It does not set Rev. An earlier one that is later than now says nothing,
// since a clock was wrong. Checkpoint makes a single attempt.
func (l *Records) Checkpoint(ctx context.Context, host string, earlier fleet.Checkpoint) (now fleet.Checkpoint, whole bool, err error) {
	stream, at := streams.Out(streams.ShardOf(host, l.conn.Shards())), time.Now()
	st, err := l.conn.Stream(ctx, stream)
	if err != nil {
		return fleet.Checkpoint{}, false, store.Unavailable("read", stream, err)
	}
	last, missing := st.Extent()
	for seq := last; seq > 0 && last-seq < maxUnreadable; seq-- {
		m, ok, err := l.conn.LeaderGet(ctx, stream, store.GetRequest{Seq: seq})
		if err != nil {
			return fleet.Checkpoint{}, false, err
		}
		if ok {
			now = fleet.Checkpoint{Seq: seq, Stored: m.Time, At: at, Missing: missing}
			break
		}
	}
	if earlier.Seq == 0 || earlier.Missing != missing || earlier.At.After(at) {
		return now, false, nil
	}
	m, ok, err := l.conn.LeaderGet(ctx, stream, store.GetRequest{Seq: earlier.Seq})
	return now, ok && m.Time.Equal(earlier.Stored), err
}
