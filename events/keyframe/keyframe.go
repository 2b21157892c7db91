package keyframe

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	pb "github.com/millrace/millrace/schema/event/v1"
)

const (
	// Every is the smallest number of bytes of output between two frames of a record.
	Every = 4 << 20
	// Slots is the maximum number of frames of a record besides the last.
	Slots = 512

	prefix   = "frame."
	lastSlot = ".last"
	minTTL   = time.Second // that a server accepts
)

// Frame is the state of a screen after an event.
type Frame struct {
	Seq    process.Seq
	Time   time.Time // of the event
	Output uint64    // bytes of output before it
	Data   []byte
}

// Store stores frames of an emulator. Its methods may be called concurrently.
type Store struct {
	conn      *store.Conn
	version   uint32 // of the emulator
	retention time.Duration
}

// NewStore returns a store for the frames of a version of an emulator. A frame is kept as long as the
// event to which it belongs.
func NewStore(conn *store.Conn, version uint32, retention time.Duration) *Store {
	return &Store{conn, version, retention}
}

func subject(id process.ID) string { return prefix + string(id.Sandbox()) + "." + id.Token() }

// slot returns the slot of the frame at n times Every bytes. ok is false if records of that length have
// none there.
func slot(n uint64) (at uint64, ok bool) {
	level := 0
	for n>>level >= Slots {
		level++
	}
	if n != n>>level<<level {
		return 0, false
	}
	// The second half of each level replaces the odd frames of the level below.
	for at = n >> level; level > 0; level-- {
		if at < Slots/2 {
			at *= 2
		} else {
			at = (at-Slots/2)*2 + 1
		}
	}
	return at, true
}

// PutLast stores the last frame of a record. It makes one attempt.
func (s *Store) PutLast(ctx context.Context, id process.ID, f *Frame) error {
	return s.put(ctx, subject(id)+lastSlot, f)
}

// Put stores the first frame at or after n times Every bytes, if records of that length have one there. It
// makes one attempt.
func (s *Store) Put(ctx context.Context, id process.ID, n uint64, f *Frame) error {
	at, ok := slot(n)
	if !ok {
		return nil
	}
	return s.put(ctx, subject(id)+"."+strconv.FormatUint(at, 10), f)
}

func (s *Store) put(ctx context.Context, subject string, f *Frame) error {
	left := s.retention - time.Since(f.Time)
	if left < minTTL {
		return nil // the event is being removed
	}
	data, err := proto.Marshal(&pb.KeyFrame{Version: s.version, Seq: f.Seq, Output: f.Output, Data: f.Data})
	if err != nil {
		return kind.Wrap(kind.Internal, "put key frame", subject, err)
	}
	return store.PublishExpiring(ctx, s.conn, subject, data, min(left, s.retention))
}

// Last returns the last frame of a record; false if there is none.
func (s *Store) Last(ctx context.Context, id process.ID) (Frame, bool, error) {
	msgs, err := s.conn.DirectGet(ctx, streams.Frames, store.GetRequest{Last: subject(id) + lastSlot})
	if err != nil || len(msgs) == 0 {
		return Frame{}, false, err
	}
	f, ok := s.decode(msgs[0])
	return f, ok, nil
}

// All returns the frames of a record in its order.
func (s *Store) All(ctx context.Context, id process.ID) ([]Frame, error) {
	msgs, err := s.conn.DirectGet(ctx, streams.Frames, store.GetRequest{Lasts: []string{subject(id) + ".*"}, Batch: Slots + 1})
	if err != nil {
		return nil, err
	}
	out := make([]Frame, 0, len(msgs))
	for _, m := range msgs {
		if f, ok := s.decode(m); ok {
			out = append(out, f)
		}
	}
	slices.SortFunc(out, func(a, b Frame) int { return cmp.Compare(a.Seq, b.Seq) })
	return slices.CompactFunc(out, func(a, b Frame) bool { return a.Seq == b.Seq }), nil
}

func (s *Store) decode(m store.Message) (Frame, bool) {
	var b pb.KeyFrame
	if err := proto.Unmarshal(m.Data, &b); err != nil || b.Version != s.version {
		return Frame{}, false
	}
	return Frame{Seq: b.Seq, Output: b.Output, Data: b.Data}, true
}
