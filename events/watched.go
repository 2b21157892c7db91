package events

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	pb "github.com/millrace/millrace/schema/event/v1"
)

// WatchPlace is how far the events of a watch were given to whoever fetches them.
// It is in the log, so that every gateway goes on where another one stopped.
type WatchPlace struct {
	From  process.Seq // the last answer began behind it
	To    process.Seq // and ended with it
	Given bool        // it is known what became of that answer: the next begins behind To
	Key   string      // that its request bore; empty: none
	Rev   uint64      // stream sequence: what PutWatchPlace must expect; 0: there is none
}

func placeSubject(id process.ID) string { return "place." + string(id.Sandbox()) + "." + id.Token() }

// WatchPlace reads a watch's place from the leader; the zero value if there is
// none.
func (l *Log) WatchPlace(ctx context.Context, id process.ID) (WatchPlace, error) {
	m, ok, err := l.lastOf(ctx, streamPlaces, placeSubject(id))
	if err != nil || !ok {
		return WatchPlace{}, err
	}
	var b pb.WatchPlace
	if err := proto.Unmarshal(m.data, &b); err != nil {
		return WatchPlace{}, kind.Wrap(kind.Internal, "read place", string(id), err)
	}
	return WatchPlace{From: b.From, To: b.To, Given: b.Given, Key: b.Key, Rev: m.seq}, nil
}

// PutWatchPlace stores a watch's place after the one with p.Rev, and gives its
// rev. Conflict if somebody else wrote first.
func (l *Log) PutWatchPlace(ctx context.Context, id process.ID, p WatchPlace) (uint64, error) {
	data, err := proto.Marshal(&pb.WatchPlace{From: p.From, To: p.To, Given: p.Given, Key: p.Key})
	if err != nil {
		return 0, kind.Wrap(kind.Internal, "put place", string(id), err)
	}
	return l.put(ctx, streamPlaces, placeSubject(id), p.Rev, data)
}
