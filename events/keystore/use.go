package keystore

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/kind"
	pb "github.com/millrace/millrace/schema/event/v1"
)

const useSubject = prefix + "use"

// Use is what the last search for values of replaced data keys found.
type Use struct {
	Time     time.Time
	By       string // service that searched
	Current  uint32 // data key that sealed values again
	Resealed uint64 // values that were sealed again for it
	Left     uint64 // values that could not be sealed again yet
	Kept     []Kept
}

// Kept is a replaced data key that is still stored.
type Kept struct {
	Data   uint32
	Stream string    // stream with a value that it sealed; empty: none was found
	Stored time.Time // when that value was stored
}

// PutUse stores the result of a search. The last one counts.
func (k *Keys) PutUse(ctx context.Context, u Use) error {
	b := &pb.KeyUse{TimeNs: u.Time.UnixNano(), By: u.By, Current: u.Current, Resealed: u.Resealed, Left: u.Left}
	for _, x := range u.Kept {
		kept := &pb.KeyKept{Data: x.Data, Stream: x.Stream}
		if !x.Stored.IsZero() {
			kept.StoredNs = x.Stored.UnixNano()
		}
		b.Kept = append(b.Kept, kept)
	}
	data, err := proto.Marshal(b)
	if err != nil {
		return kind.Wrap(kind.Internal, "store use of keys", "", err)
	}
	rev, err := k.conn.PublishPlain(ctx, useSubject, data)
	if err != nil {
		return err
	}
	s, err := k.conn.Stream(ctx, streams.Secrets)
	if err != nil {
		return err
	}
	return s.Purge(ctx, useSubject, rev)
}

// LastUse returns the result of the last search. ok is false if there was none.
func (k *Keys) LastUse(ctx context.Context) (u Use, ok bool, err error) {
	m, ok, err := k.conn.LastOf(ctx, streams.Secrets, useSubject)
	if err != nil || !ok {
		return Use{}, false, err
	}
	u, err = decodeUse(m.Data)
	return u, true, err
}

func decodeUse(data []byte) (Use, error) {
	var b pb.KeyUse
	if err := proto.Unmarshal(data, &b); err != nil {
		return Use{}, kind.Wrap(kind.Internal, "read use of keys", "", err)
	}
	u := Use{Time: time.Unix(0, b.TimeNs), By: b.By, Current: b.Current, Resealed: b.Resealed, Left: b.Left}
	for _, x := range b.Kept {
		kept := Kept{Data: x.GetData(), Stream: x.GetStream()}
		if x.GetStoredNs() > 0 {
			kept.Stored = time.Unix(0, x.GetStoredNs())
		}
		u.Kept = append(u.Kept, kept)
	}
	return u, nil
}
