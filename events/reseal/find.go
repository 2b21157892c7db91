package reseal

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/seal"
)

// Found is a message with a value that a data key sealed. The zero value means that there is
// none.
type Found struct {
	Stream string
	Seq    uint64 // stream sequence
	Stored time.Time
}

// unsealed are the streams that never have sealed values. Every other stream is searched, so that
// a new one cannot be forgotten.
var unsealed = []string{streams.Secrets, streams.IO, streams.Tunnels, streams.Tallies, streams.Use, streams.HookLog, streams.Frames, streams.Positions, streams.Hosts, streams.Audit, streams.Meter, streams.Ledger}

// searched returns the streams to search, those first that keep values for the longest time.
func searched(shards int) []string {
	order := []string{streams.Sandboxes, streams.Snapshots, streams.Builds, streams.Vault, streams.Hooks, streams.Accounts}
	for _, name := range streams.Names(shards) {
		output := strings.HasPrefix(streams.SourceOf(name), "out.")
		if !output && !slices.Contains(unsealed, name) && !slices.Contains(order, name) {
			order = append(order, name)
		}
	}
	return order
}

// Find returns a message with a value that the data key with a number sealed. It begins at last,
// the result of an earlier call. It returns the zero value only after it has read everything that
// was stored before the call, and Unavailable if it could not.
func (v *Values) Find(ctx context.Context, number uint32, last Found) (Found, error) {
	head := seal.Head(number)
	if last.Stream != "" {
		m, ok, err := v.conn.LeaderGet(ctx, last.Stream, store.GetRequest{Seq: last.Seq})
		if err != nil || ok && bytes.Contains(m.Data, head) {
			return last, err
		}
	}
	for _, name := range searched(v.conn.Shards()) {
		f, err := v.search(ctx, name, head)
		if err != nil || f.Stream != "" {
			return f, err
		}
	}
	return Found{}, nil
}

// search searches one stream, up to its end at the call.
func (v *Values) search(ctx context.Context, stream string, head []byte) (Found, error) {
	end, err := v.conn.LastSeq(ctx, stream)
	if err != nil {
		return Found{}, err
	}
	for next := uint64(1); next <= end; {
		msgs, err := v.conn.GetFrom(ctx, stream, ">", next, store.BatchSize)
		if err != nil {
			return Found{}, store.Unavailable("search", stream, err)
		}
		if len(msgs) == 0 {
			return Found{}, v.checkEnd(ctx, stream, next)
		}
		for _, m := range msgs {
			if bytes.Contains(m.Data, head) {
				return Found{stream, m.Seq, m.Time}, nil
			}
			next = m.Seq + 1
		}
	}
	return Found{}, nil
}

// checkEnd returns Unavailable if a stream has messages from a position on that a replica did not
// return: it lags behind. They may also have been removed meanwhile.
func (v *Values) checkEnd(ctx context.Context, stream string, next uint64) error {
	last, err := v.conn.LastSeq(ctx, stream)
	if err == nil && last >= next {
		err = kind.New(kind.Unavailable, "search", stream, "a replica lags behind the stream's leader")
	}
	return err
}
