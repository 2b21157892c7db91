package share

import (
	"cmp"
	"context"
	"crypto/rand"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/internal/codec"
	"github.com/millrace/millrace/events/internal/fold"
	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	pb "github.com/millrace/millrace/schema/event/v1"
)

const (
	subjectPrefix = "share."
	markBytes     = 12 // of the random mark of a message
	// Keep is how long a share is kept after its end.
	Keep = 24 * time.Hour
)

// docs is how shares are stored.
var docs = &fold.Document[ID, Share]{
	Name: "share", Stream: streams.Shares, Notify: true,
	Subject: func(s *Share) string { return subjectPrefix + s.Tenant + "." + string(s.ID) },
	Key:     func(s *Share) ID { return s.ID },
	Compare: func(a, b Share) int { return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID)) },
	Rev:     func(s *Share) uint64 { return s.Rev },
	Encode:  encode, Decode: decode,
	Over: func(s *Share) (time.Time, bool) { return s.Ended(time.Now()) },
	Keep: Keep,
	Find: func(subject string) ID { return ID(subject[strings.LastIndexByte(subject, '.')+1:]) },
}

func encode(s *Share) proto.Message {
	mark := make([]byte, markBytes)
	rand.Read(mark)
	return &pb.Share{
		Id: string(s.ID), Tenant: s.Tenant, Sandbox: string(s.Sandbox), Process: string(s.Process), Seq: s.Seq, Hash: s.Hash[:],
		CreatedNs: codec.Nanos(s.Created), ExpiresNs: codec.Nanos(s.Expires), RevokedNs: codec.Nanos(s.Revoked), Attempt: mark,
	}
}

func decode(m store.Message) (Share, error) {
	var b pb.Share
	if err := proto.Unmarshal(m.Data, &b); err != nil {
		return Share{}, err
	}
	s := Share{
		ID: ID(b.Id), Tenant: b.Tenant, Sandbox: sandbox.ID(b.Sandbox), Process: process.ID(b.Process), Seq: b.Seq,
		Created: codec.Time(b.CreatedNs), Expires: codec.Time(b.ExpiresNs), Revoked: codec.Time(b.RevokedNs), Rev: m.Seq,
	}
	if copy(s.Hash[:], b.Hash) != len(s.Hash) {
		return s, kind.New(kind.Internal, "decode share", b.Id, "the hash of a token is too short")
	}
	return s, nil
}

// Store has the shares in the log, and a view of them. Its methods may be called concurrently, after
// Start.
type Store struct {
	conn     *store.Conn
	progress *fold.Progress
	table    *fold.Table[ID, Share]
	byHash   map[Hash]ID // guarded by the lock of the view
}

// NewStore returns a store whose view is empty until Start.
func NewStore(conn *store.Conn) *Store {
	p := fold.NewProgress(conn)
	return &Store{conn: conn, progress: p, table: fold.NewTable(p, docs), byHash: make(map[Hash]ID)}
}

// Start keeps the view up to date until ctx ends. It is called once.
func (s *Store) Start(ctx context.Context) error {
	return s.progress.Start(ctx, []fold.Source{{Stream: streams.Shares, Apply: s.apply, Notify: true}})
}

// apply stores what a message contains. The view is locked.
func (s *Store) apply(m store.Message) error {
	x, err := decode(m)
	if err == nil {
		s.table.Set(x)
		s.byHash[x.Hash] = x.ID
	}
	return err
}

// Changes returns a channel that receives a value after changes of the view, until stop is called.
func (s *Store) Changes() (changed <-chan struct{}, stop func()) { return s.progress.Changes() }

// Sync waits until everything stored before the call is in the view. It retries through outages
// until ctx ends.
func (s *Store) Sync(ctx context.Context) error {
	return store.Unavailable("sync", streams.Shares, s.progress.Sync(ctx))
}

// Get returns a share as of the view, also one that has ended.
func (s *Store) Get(id ID) (Share, bool) { return s.table.Get(id) }

// Find returns the share of a token as of the view, also one that has ended.
func (s *Store) Find(h Hash) (Share, bool) {
	s.progress.Lock()
	defer s.progress.Unlock()
	x, ok := s.table.Docs[s.byHash[h]]
	return x, ok
}

// List returns the shares for which keep is true, the oldest first. keep must not retain its argument.
func (s *Store) List(keep func(*Share) bool) []Share { return s.table.List(keep) }

// Create stores a new share. It retries through outages until ctx ends.
func (s *Store) Create(ctx context.Context, x *Share) error {
	rev, err := docs.Put(ctx, s.conn, x)
	x.Rev = rev
	return err
}

// Revoke ends a tenant's share now, unless it has ended. It returns NotFound if there is none.
func (s *Store) Revoke(ctx context.Context, tenant string, id ID) error {
	if err := s.Sync(ctx); err != nil {
		return err
	}
	if x, ok := s.Get(id); !ok || x.Tenant != tenant {
		return NotFound(id)
	}
	_, err := s.table.Change(ctx, id, func(x *Share) bool {
		x.Revoked = time.Now()
		return true
	})
	return err
}

// Sweep removes shares from the view, and then from the log, [Keep] after their end.
func (s *Store) Sweep(ctx context.Context) error {
	s.progress.Lock()
	s.table.Expire(time.Now())
	for h, id := range s.byHash {
		if _, ok := s.table.Docs[id]; !ok {
			delete(s.byHash, h)
		}
	}
	s.progress.Unlock()
	_, err := s.table.SweepOlder(ctx, Keep)
	return err
}
