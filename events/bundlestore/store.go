package bundlestore

import (
	"context"
	"crypto/rand"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/bundle"
	"github.com/millrace/millrace/events/internal/codec"
	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/seal"
	pb "github.com/millrace/millrace/schema/event/v1"
)

const (
	headPrefix  = "bundle.head."
	valuePrefix = "bundle.value."

	markBytes = 12 // of the random mark of a message
)

// Store has the bundles in the log. Its methods may be called concurrently, and retry through
// outages until ctx ends.
type Store struct{ conn *store.Conn }

// New returns the bundles in the log.
func New(conn *store.Conn) *Store { return &Store{conn} }

// State returns the bundles of a tenant, not older than the call.
func (s *Store) State(ctx context.Context, tenant string) (bundle.State, error) {
	m, ok, err := s.conn.LastOf(ctx, streams.Bundles, headPrefix+tenant)
	if err != nil {
		return bundle.State{}, store.Unavailable("read secret bundles", tenant, err)
	}
	out := bundle.State{Tenant: tenant}
	if !ok {
		return out, nil
	}
	var b pb.BundleHeads
	if err := proto.Unmarshal(m.Data, &b); err != nil {
		return out, kind.Wrap(kind.Internal, "read secret bundles", tenant, err)
	}
	out.Rev = m.Seq
	for _, h := range b.Heads {
		out.Heads = append(out.Heads, bundle.Head{
			Name: bundle.Name(h.Name), Keys: h.Keys, Generation: bundle.Generation(h.Generation), Created: codec.Time(h.CreatedNs), Rotated: codec.Time(h.RotatedNs),
		})
	}
	return out, nil
}

// Append applies an event and stores the result. It returns the new state, and the bundle that the
// event replaced or deleted. It returns the errors of [bundle.State.Apply]; or Conflict without
// a code if the bundles changed since s was read. After an error of kind.Unavailable the result may
// be stored.
func (s *Store) Append(ctx context.Context, from *bundle.State, b bundle.Body) (next bundle.State, was bundle.Head, err error) {
	next, was, err = from.Apply(b)
	if err != nil {
		return next, was, err
	}
	m := pb.BundleHeads{Attempt: make([]byte, markBytes), Event: b.Kind()}
	rand.Read(m.Attempt)
	for i := range next.Heads {
		h := &next.Heads[i]
		m.Heads = append(m.Heads, &pb.BundleHead{
			Name: string(h.Name), Keys: h.Keys, Generation: string(h.Generation), CreatedNs: codec.Nanos(h.Created), RotatedNs: codec.Nanos(h.Rotated),
		})
	}
	next.Rev, err = s.put(ctx, headPrefix+from.Tenant, from.Rev, &m)
	return next, was, err
}

func (s *Store) put(ctx context.Context, subject string, rev uint64, m proto.Message) (uint64, error) {
	data, err := proto.Marshal(m)
	if err != nil {
		return 0, kind.Wrap(kind.Internal, "append", subject, err)
	}
	return s.conn.Put(ctx, streams.Bundles, subject, rev, data)
}

func valueSubject(tenant string, g bundle.Generation, index int) string {
	return fmt.Sprintf("%s%s.%s.%d", valuePrefix, tenant, g, index)
}

// PutValue stores one value of a new generation. index is that of its key.
func (s *Store) PutValue(ctx context.Context, tenant string, g bundle.Generation, index int, v bundle.Value) error {
	_, err := s.put(ctx, valueSubject(tenant, g, index), 0, &pb.BundleValue{Key: v.Key, Sealed: []byte(v.Sealed)})
	return err
}

// Value returns a value of a generation. ok is false if the generation was removed, or never stored.
func (s *Store) Value(ctx context.Context, tenant string, g bundle.Generation, index int) (v bundle.Value, ok bool, err error) {
	subject := valueSubject(tenant, g, index)
	m, ok, err := s.conn.ReadOne(ctx, streams.Bundles, store.GetRequest{Last: subject})
	if err != nil || !ok {
		return v, false, store.Unavailable("read secret", subject, err)
	}
	var b pb.BundleValue
	if err := proto.Unmarshal(m.Data, &b); err != nil {
		return v, false, kind.Wrap(kind.Internal, "read secret", subject, err)
	}
	return bundle.Value{Key: b.Key, Sealed: seal.Text(b.Sealed)}, true, nil
}
