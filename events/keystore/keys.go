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
func New(conn *store.Conn, source seal.Source) *Keys { return &Keys{conn, source} }

// Secret returns the cluster's secret of that name: 32 random bytes, created by the first
// caller and the same for all callers after it. name must be a literal in the program. It
// retries through outages until ctx ends. An error of the master key has kind Precondition.
func (k *Keys) Secret(ctx context.Context, name string) ([]byte, error) {
	for {
		set, master, rev, err := k.open(ctx)
		if err != nil {
			return nil, err
		}
		value, ok, err := set.Secret(master, name)
		if ok || err != nil {
			return value, err
		}
		if err := set.AddSecret(master, name); err != nil {
			return nil, err
		}
		if _, err := k.put(ctx, rev, set); err != nil && !kind.Is(err, kind.Conflict) {
			return nil, err
		}
	}
}

// Ring returns the ring that seals and opens values. Its errors are those of Secret.
func (k *Keys) Ring(ctx context.Context) (*seal.Ring, error) {
	r, err := k.ring(ctx, 0)
	if err == nil {
		r.ReadBy(func(current uint32) (*seal.Ring, error) {
			ctx, cancel := context.WithTimeout(context.Background(), reloadTimeout)
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
		m, ok, err := k.conn.LastOf(ctx, streams.Secrets, subject)
		if err != nil {
			return nil, err
		}
		if set, err := decode(m.Data); ok && err == nil && set.Current == current {
			return nil, nil //nolint:nilnil // documented by seal.Reader
		}
	}
	set, master, _, err := k.open(ctx)
	if err != nil {
		return nil, err
	}
	return set.Ring(master)
}

// open returns the stored set, or stores the first one. rev is its stream sequence.
func (k *Keys) open(ctx context.Context) (set *seal.Set, master *seal.Master, rev uint64, err error) {
	if k.source == nil {
		return nil, nil, 0, seal.Missing("no master key is set: see --master-key")
	}
	for {
		m, ok, err := k.conn.LastOf(ctx, streams.Secrets, subject)
		if err != nil {
			return nil, nil, 0, err
		}
		master, err := k.source(ctx, !ok)
		if err != nil {
			return nil, nil, 0, err
		}
		if ok {
			set, err := decode(m.Data)
			return set, master, m.Seq, err
		}
		set := seal.NewSet(master)
		rev, err := k.put(ctx, 0, set)
		if err == nil || !kind.Is(err, kind.Conflict) {
			return set, master, rev, err
		}
	}
}

func (k *Keys) put(ctx context.Context, rev uint64, set *seal.Set) (uint64, error) {
	data, err := proto.Marshal(&pb.KeySet{Current: set.Current, Data: set.Data, Secrets: set.Secrets})
	if err != nil {
		return 0, kind.Wrap(kind.Internal, "store keys", "", err)
	}
	return k.conn.Put(ctx, streams.Secrets, subject, rev, data)
}

func decode(data []byte) (*seal.Set, error) {
	var b pb.KeySet
	if err := proto.Unmarshal(data, &b); err != nil {
		return nil, kind.Wrap(kind.Internal, "read keys", "", err)
	}
	set := &seal.Set{Current: b.Current, Data: b.Data, Secrets: b.Secrets}
	if set.Data == nil {
		set.Data = make(map[uint32][]byte)
	}
	if set.Secrets == nil {
		set.Secrets = make(map[string][]byte)
	}
	return set, nil
}
