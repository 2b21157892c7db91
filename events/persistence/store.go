package persistence

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
	"github.com/millrace/millrace/events/sandbox"
	pb "github.com/millrace/millrace/schema/event/v1"
)

const (
	subjectPrefix = "persist."
	markBytes     = 12 // of the random mark of a message
)

// docs is how progress is stored.
var docs = &fold.Document[sandbox.ID, Progress]{
	Name: "persistence progress", Stream: streams.Persistence,
	Subject: func(p *Progress) string { return subjectPrefix + p.Tenant + "." + string(p.Sandbox) },
	Key:     func(p *Progress) sandbox.ID { return p.Sandbox },
	Compare: func(a, b Progress) int { return cmp.Compare(a.Sandbox, b.Sandbox) },
	Rev:     func(p *Progress) uint64 { return p.Rev },
	Encode:  encode, Decode: decode,
	Over: func(p *Progress) (time.Time, bool) { return p.Stored, p.Done },
	Keep: Keep,
	Find: func(subject string) sandbox.ID { return sandbox.ID(subject[strings.LastIndexByte(subject, '.')+1:]) },
}

func encode(p *Progress) proto.Message {
	mark := make([]byte, markBytes)
	rand.Read(mark)
	return &pb.PersistenceProgress{
		Tenant: p.Tenant, Sandbox: string(p.Sandbox), Offset: p.Offset, After: p.After, Events: p.Events, Requests: p.Requests,
		Failures: p.Failures, Error: p.Error, Holder: p.Holder, Done: p.Done, StoredNs: codec.Nanos(p.Stored), Attempt: mark,
	}
}

func decode(m store.Message) (Progress, error) {
	var b pb.PersistenceProgress
	err := proto.Unmarshal(m.Data, &b)
	return Progress{
		Tenant: b.Tenant, Sandbox: sandbox.ID(b.Sandbox), Offset: b.Offset, After: b.After, Events: b.Events, Requests: b.Requests,
		Failures: b.Failures, Error: b.Error, Holder: b.Holder, Done: b.Done, Stored: codec.Time(b.StoredNs),
		Rev: m.Seq, Received: time.Now(),
	}, err
}

// Store has the progress of all sandboxes in the log, and a view of it. Its methods may be called
// concurrently, after Start.
type Store struct {
	conn     *store.Conn
	progress *fold.Progress
	table    *fold.Table[sandbox.ID, Progress]
}

// NewStore returns a store whose view is empty until Start.
func NewStore(conn *store.Conn) *Store {
	p := fold.NewProgress(conn)
	return &Store{conn: conn, progress: p, table: fold.NewTable(p, docs)}
}

// Start keeps the view up to date until ctx ends. It is called once.
func (s *Store) Start(ctx context.Context) error {
	return s.progress.Start(ctx, []fold.Source{s.table.Source()})
}

// Sync waits until everything stored before the call is in the view. It retries through outages
// until ctx ends.
func (s *Store) Sync(ctx context.Context) error {
	return store.Unavailable("sync", streams.Persistence, s.progress.Sync(ctx))
}

// Get returns the progress of a sandbox as of the view. It is empty, but for its names, if nothing is
// stored.
func (s *Store) Get(tenant string, id sandbox.ID) Progress {
	p, ok := s.table.Get(id)
	if !ok {
		return Progress{Tenant: tenant, Sandbox: id}
	}
	return p
}

// Put replaces the progress whose last message has stream sequence p.Rev (0: a new one), and sets p.Rev
// and p.Stored. It returns Conflict if another writer was first, and retries through outages until ctx
// ends.
func (s *Store) Put(ctx context.Context, p *Progress) error {
	p.Stored = time.Now()
	rev, err := docs.Put(ctx, s.conn, p)
	if err == nil {
		p.Rev = rev
	}
	return err
}

// Sweep removes progress from the view, and then from the log, [Keep] after everything was sent.
func (s *Store) Sweep(ctx context.Context) error {
	s.progress.Lock()
	s.table.Expire(time.Now())
	s.progress.Unlock()
	_, err := s.table.SweepOlder(ctx, Keep)
	return store.Unavailable("sweep", streams.Persistence, err)
}
