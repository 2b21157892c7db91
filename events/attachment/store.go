package attachment

import (
	"context"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/fleet"
	"github.com/millrace/millrace/events/internal/fold"
	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
)

const (
	// unknownAge is the age at which a session without its gateway's lease has lost it: the
	// lease was stored before the session, and removed long after its end.
	unknownAge = time.Minute
	// maxGap is the longest time between two renewals that is no break in the contact.
	maxGap = 2 * time.Second
)

// Store has the sessions and the leases of gateways in the log, and a view of them. Its methods
// may be called concurrently, after Start.
type Store struct {
	conn     *store.Conn
	progress *fold.Progress
	sessions *fold.Table[string, Session]
	leases   *fold.Table[string, lease]
	writers  *fold.Table[string, Writer]
	swept    fold.Swept

	contact fleet.Contact // guarded by the lock of the view
}

// NewStore returns a store whose view is empty until Start.
func NewStore(conn *store.Conn) *Store {
	p := fold.NewProgress(conn)
	s := &Store{
		conn: conn, progress: p, sessions: fold.NewTable(p, sessions), leases: fold.NewTable(p, leases), writers: fold.NewTable(p, writers),
		contact: fleet.Contact{MaxGap: maxGap},
	}
	s.leases.InUse = s.namedRuns
	return s
}

// Start keeps the view up to date until ctx ends. It is called once.
func (s *Store) Start(ctx context.Context) error {
	return s.progress.Start(ctx, []fold.Source{{Stream: streams.Attachments, Apply: s.apply}})
}

// apply stores what a message contains. The view is locked.
func (s *Store) apply(m store.Message) error {
	if strings.HasPrefix(m.Subject, gatewayPrefix) {
		return s.leases.Source().Apply(m)
	}
	if strings.HasPrefix(m.Subject, writerPrefix) {
		return s.writers.Source().Apply(m)
	}
	return s.sessions.Source().Apply(m)
}

// namedRuns returns the runs that have a client of a session, as far as is stored. The view is
// locked.
func (s *Store) namedRuns(time.Time) map[string]bool {
	runs := make(map[string]bool)
	for _, x := range s.sessions.Docs {
		if x.Phase == Attached {
			runs[x.Gateway] = true
		}
	}
	return runs
}

// Put replaces a session whose last message has stream sequence x.Rev (0: a new session) and
// sets x.Rev. It returns Conflict if another writer was first, and retries through outages
// until ctx ends.
func (s *Store) Put(ctx context.Context, x *Session) error {
	rev, err := sessions.Put(ctx, s.conn, x)
	if err == nil {
		x.Rev = rev
	}
	return err
}

// Renew stores the lease of a run, and returns when the view has everything that was stored
// before. Holders are judged by how long the calls have succeeded.
func (s *Store) Renew(ctx context.Context, run string, ttl time.Duration) error {
	l := lease{Host: fleet.Host{Lease: fleet.Lease{Host: run, TTL: ttl}}}
	data, err := proto.Marshal(leases.Encode(&l))
	if err != nil {
		return kind.Wrap(kind.Internal, "renew lease", run, err)
	}
	if err := s.conn.PutLast(ctx, streams.Attachments, leases.Subject(&l), data); err != nil {
		return err
	}
	if err := s.Sync(ctx); err != nil {
		return err
	}
	s.progress.Lock()
	defer s.progress.Unlock()
	s.contact.UpToDate(time.Now())
	return nil
}

// Sync waits until everything stored before the call is in the view. It retries through outages
// until ctx ends.
func (s *Store) Sync(ctx context.Context) error {
	return store.Unavailable("sync", streams.Attachments, s.progress.Sync(ctx))
}

// Session returns a session as of the view.
func (s *Store) Session(tenant, id string) (Session, bool) {
	return s.sessions.Get(keyOf(tenant, id))
}

// Sessions returns the sessions for which keep is true, the oldest first. keep must not retain
// its argument.
func (s *Store) Sessions(keep func(*Session) bool) []Session { return s.sessions.List(keep) }

// Writer returns the writer of a terminal as of the view, and whether a client has the lease.
func (s *Store) Writer(tenant string, id process.ID, now time.Time) (w Writer, held bool) {
	w, ok := s.writers.Get(keyOf(tenant, string(id)))
	if !ok {
		return Writer{Tenant: tenant, Process: id}, false
	}
	gone := s.Holder(&Session{Gateway: w.Gateway, Since: w.Stored}).Gone
	return w, w.Held(gone, now)
}

// PutWriter replaces the writer of a terminal as [Store.Put] replaces a session.
func (s *Store) PutWriter(ctx context.Context, w *Writer) error {
	_, err := writers.Put(ctx, s.conn, w)
	return err
}

// Holder returns what is known about the gateway of a session.
func (s *Store) Holder(x *Session) Holder {
	s.progress.Lock()
	defer s.progress.Unlock()
	l, ok := s.leases.Docs[x.Gateway]
	switch {
	case !ok:
		return Holder{Gone: time.Since(x.Since) > unknownAge, Since: x.Since}
	case !s.contact.Silent(&l.Host):
		return Holder{}
	}
	return Holder{Gone: true, Since: l.ends()}
}

// Sweep removes sessions that have ended, and leases that no session names, from the view and
// then from the log.
func (s *Store) Sweep(ctx context.Context) error {
	s.expire(time.Now())
	_, err := s.swept.Sweep(ctx, s.progress, streams.Attachments, endedAge, s.needed)
	return store.Unavailable("sweep", streams.Attachments, err)
}

// expire removes what is old from the view.
func (s *Store) expire(now time.Time) {
	s.progress.Lock()
	defer s.progress.Unlock()
	s.sessions.Expire(now)
	s.leases.Expire(now)
	s.writers.Expire(now)
}

// needed reports whether a subject must stay in the log.
func (s *Store) needed(subject string) bool {
	if run, ok := strings.CutPrefix(subject, gatewayPrefix); ok {
		_, found := s.leases.Get(run)
		return found
	}
	if key, ok := strings.CutPrefix(subject, writerPrefix); ok {
		_, found := s.writers.Get(key)
		return found
	}
	x, found := s.sessions.Get(strings.TrimPrefix(subject, sessionPrefix))
	return found && x.Phase != Ended
}
