package keystore

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/seal"
	pb "github.com/millrace/millrace/schema/event/v1"
)

const (
	prefix  = "secret."
	subject = prefix + "keys"

	// reloadTimeout bounds how long sealing or opening a value waits for the keys.
	reloadTimeout = 10 * time.Second
)

// Keys are the keys in the log. Its methods may be called concurrently.
type Keys struct {
	conn   *store.Conn
	source seal.Source // nil: the service has no master key
}

// New returns the keys that the master keys of a source seal.
func New(conn *store.Conn, source seal.Source) *Keys { return &Keys{conn: conn, source: source} }

// Secret returns the cluster's secret of that name: 32 random bytes, created by the first
// caller and the same for all callers after it. name must be a literal in the program. It
// retries through outages until ctx ends. An error of the master key has kind Precondition.
func (k *Keys) Secret(ctx context.Context, name string) ([]byte, error) {
	for {
		at, master, err := k.open(ctx)
		if err != nil {
			return nil, err
		}
		value, ok, err := at.set.Secret(master, name)
		if ok || err != nil {
			return value, err
		}
		if err := at.set.AddSecret(master, name); err != nil {
			return nil, err
		}
		if _, err := k.put(ctx, at); err != nil && !kind.Is(err, kind.Conflict) {
			return nil, err
		}
	}
}

// Ring returns the ring that seals and opens values. Its errors are those of Secret.
func (k *Keys) Ring(ctx context.Context) (*seal.Ring, error) {
	r, err := k.ring(ctx, 0)
	if err == nil {
		r.ReadBy(func(ctx context.Context, current uint32) (*seal.Ring, error) {
			ctx, cancel := context.WithTimeout(ctx, reloadTimeout)
			defer cancel()
			return k.ring(ctx, current)
		})
	}
	return r, err
}

// ring returns nil if the current data key has the number current. That needs no master key, so
// that a service without the newest one works until the data key is replaced, too.
func (k *Keys) ring(ctx context.Context, current uint32) (*seal.Ring, error) {
	if current > 0 {
		at, ok, err := k.stored(ctx)
		if err != nil {
			return nil, err
		}
		if ok && at.set.Current == current {
			return nil, nil // the ring keeps its keys
		}
	}
	at, master, err := k.open(ctx)
	if err != nil {
		return nil, err
	}
	return at.set.Ring(master)
}

// version is the keys at a time.
type version struct {
	rev     uint64 // stream sequence
	set     *seal.Set
	changes []Change // the last ones, oldest first
}

// stored returns the stored keys. ok is false if there are none yet.
func (k *Keys) stored(ctx context.Context) (at version, ok bool, err error) {
	m, ok, err := k.conn.LastOf(ctx, streams.Secrets, subject)
	if err != nil || !ok {
		return version{}, false, err
	}
	at, err = decode(m.Data)
	at.rev = m.Seq
	return at, true, err
}

// open returns the stored keys and the master keys, or stores the first keys.
func (k *Keys) open(ctx context.Context) (version, *seal.Master, error) {
	if k.source == nil {
		return version{}, nil, seal.Missing("no master key is set: see --master-key")
	}
	for {
		at, ok, err := k.stored(ctx)
		if err != nil {
			return version{}, nil, err
		}
		master, err := k.source(ctx, !ok)
		if err != nil {
			return version{}, nil, err
		}
		if ok {
			return at, master, nil
		}
		first := version{set: seal.NewSet(master)}
		first.note(Change{Kind: Created, Data: first.set.Current}, "")
		first.rev, err = k.put(ctx, first)
		if err == nil || !kind.Is(err, kind.Conflict) {
			return first, master, err
		}
	}
}

// put stores keys as the next version after at.rev.
func (k *Keys) put(ctx context.Context, at version) (uint64, error) {
	data, err := encode(at)
	if err != nil {
		return 0, err
	}
	return k.conn.Put(ctx, streams.Secrets, subject, at.rev, data)
}

func encode(at version) ([]byte, error) {
	b := &pb.Keyring{Current: at.set.Current, Data: at.set.Data, Secrets: at.set.Secrets}
	for _, c := range at.changes {
		b.Changes = append(b.Changes, &pb.KeyChange{TimeNs: c.Time.UnixNano(), Kind: uint32(c.Kind), Data: c.Data, Master: c.Master, By: c.By})
	}
	data, err := proto.Marshal(b)
	return data, kind.Wrap(kind.Internal, "store keys", "", err)
}

func decode(data []byte) (version, error) {
	var b pb.Keyring
	if err := proto.Unmarshal(data, &b); err != nil {
		return version{}, kind.Wrap(kind.Internal, "read keys", "", err)
	}
	at := version{set: &seal.Set{Current: b.Current, Data: b.Data, Secrets: b.Secrets}}
	if at.set.Data == nil {
		at.set.Data = make(map[uint32][]byte)
	}
	if at.set.Secrets == nil {
		at.set.Secrets = make(map[string][]byte)
	}
	for _, c := range b.Changes {
		at.changes = append(at.changes, Change{
			Time: time.Unix(0, c.GetTimeNs()), Kind: ChangeKind(c.GetKind()), Data: c.GetData(), Master: c.GetMaster(), By: c.GetBy(),
		})
	}
	return at, nil
}
