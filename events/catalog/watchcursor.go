package catalog

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	pb "github.com/millrace/millrace/schema/event/v1"
)

// WatchCursor is the position in a watch up to which its client has fetched events. It is in
// the log, so that any gateway can continue from it.
type WatchCursor struct {
	From  process.Seq // the last response began after it
	To    process.Seq // and ended with it
	Given bool        // the outcome of that response is known: the next one begins after To
	Key   string      // idempotency key of its request; empty: none
	Rev   uint64      // stream sequence, which PutWatchCursor must expect; 0: none
}

func positionSubject(id process.ID) string { return "place." + string(id.Sandbox()) + "." + id.Token() }

// WatchCursor reads a watch's position from the leader; the zero value if none is stored.
func (d *Documents) WatchCursor(ctx context.Context, id process.ID) (WatchCursor, error) {
	m, ok, err := d.conn.LastOf(ctx, streams.Positions, positionSubject(id))
	if err != nil || !ok {
		return WatchCursor{}, err
	}
	var b pb.WatchPlace
	if err := proto.Unmarshal(m.Data, &b); err != nil {
		return WatchCursor{}, kind.Wrap(kind.Internal, "read place", string(id), err)
	}
	return WatchCursor{From: b.From, To: b.To, Given: b.Given, Key: b.Key, Rev: m.Seq}, nil
}

// PutWatchCursor replaces a watch's position with stream sequence p.Rev and returns the new
// rev. It returns Conflict if another writer was first.
func (d *Documents) PutWatchCursor(ctx context.Context, id process.ID, p WatchCursor) (uint64, error) {
	data, err := proto.Marshal(&pb.WatchPlace{From: p.From, To: p.To, Given: p.Given, Key: p.Key})
	if err != nil {
		return 0, kind.Wrap(kind.Internal, "put place", string(id), err)
	}
	return d.conn.Put(ctx, streams.Positions, positionSubject(id), p.Rev, data)
}
