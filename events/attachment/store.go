package attachment

import (
	"context"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/fleet"
	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	pb "github.com/millrace/millrace/schema/event/v1"
)

const (
	sessionPrefix = "attach.session."
	gatewayPrefix = "attach.gateway."

	// unknownAge is the age at which a session without its gateway's lease has lost it: the
	// lease was stored before the session, and removed long after its end.
	unknownAge = time.Minute
	// maxGap is the longest time between two renewals that is no break in the contact.
	maxGap = 2 * time.Second
)

// Store has the sessions and the leases of gateways in the log, and keeps a copy in memory. Its
// methods may be called concurrently.
type Store struct {
	conn *store.Conn

	mu       sync.Mutex
	sessions map[string]Session    // by subject
	gateways map[string]fleet.Host // leases, by run
	applied  uint64                // stream sequence
	changed  chan struct{}         // closed and replaced at every change
	err      error                 // why the copy is no longer kept up to date
	contact  fleet.Contact
}

// NewStore returns a store whose copy is empty until Run.
func NewStore(conn *store.Conn) *Store {
	return &Store{
		conn: conn, sessions: make(map[string]Session), gateways: make(map[string]fleet.Host),
		changed: make(chan struct{}), contact: fleet.Contact{MaxGap: maxGap},
	}
}

// Run keeps the copy up to date until ctx ends.
func (s *Store) Run(ctx context.Context) error {
	f, err := s.conn.Follow(streams.Attachments, ">", 0)
	if err != nil {
		return store.Unavailable("follow", streams.Attachments, err)
	}
	defer f.Close()
	for {
		msgs, err := f.Next(ctx, nil)
		s.mu.Lock()
		s.err = err
		for _, m := range msgs {
			if err := s.apply(m); err != nil {
				s.conn.Log().Error("apply message failed", "subject", m.Subject, "rev", m.Seq, "err", err)
			}
			s.applied = m.Seq
		}
		close(s.changed)
		s.changed = make(chan struct{})
		s.mu.Unlock()
		if err != nil && ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return store.Unavailable("follow", streams.Attachments, err)
		}
	}
}

// apply stores what a message contains in the copy, which is locked.
func (s *Store) apply(m store.Message) error {
	if run, ok := strings.CutPrefix(m.Subject, gatewayPrefix); ok {
		var b pb.GatewayLease
		err := proto.Unmarshal(m.Data, &b)
		s.gateways[run] = fleet.Host{Lease: fleet.Lease{Host: run, TTL: time.Duration(b.TtlNs)}, Rev: m.Seq, Received: time.Now()}
		return err
	}
	x, err := decode(m)
	if err == nil {
		s.sessions[m.Subject] = x
	}
	return err
}

func subjectOf(tenant, id string) string { return sessionPrefix + tenant + "." + id }

func decode(m store.Message) (Session, error) {
	var b pb.AttachedSession
	if err := proto.Unmarshal(m.Data, &b); err != nil {
		return Session{}, err
	}
	sbx, err := sandbox.ParseID(b.Sandbox)
	return Session{
		ID: b.Id, Tenant: b.Tenant, Surface: b.Surface, Sandbox: sbx, Owned: b.Owned,
		Policy: Policy{Terminate: b.Terminate, TTL: time.Duration(b.TtlNs)},
		Phase:  Phase(b.Phase), Gateway: b.Gateway, Client: b.Client, Since: m.Time, Rev: m.Seq,
	}, err
}

// Put replaces a session whose last message has stream sequence x.Rev (0: a new session) and
// sets x.Rev. It returns Conflict if another writer was first, and retries through outages
// until ctx ends.
func (s *Store) Put(ctx context.Context, x *Session) error {
	data, err := proto.Marshal(&pb.AttachedSession{
		Id: x.ID, Tenant: x.Tenant, Surface: x.Surface, Sandbox: string(x.Sandbox), Owned: x.Owned, Phase: uint32(x.Phase),
		Gateway: x.Gateway, Client: x.Client, Terminate: x.Policy.Terminate, TtlNs: int64(x.Policy.TTL),
	})
	if err != nil {
		return kind.Wrap(kind.Internal, "put session", x.ID, err)
	}
	rev, err := s.conn.Put(ctx, streams.Attachments, subjectOf(x.Tenant, x.ID), x.Rev, data)
	if err == nil {
		x.Rev = rev
	}
	return err
}

// Renew stores the lease of a run, and returns when the copy has everything that was stored
// before. Holders are judged by how long the calls have succeeded.
func (s *Store) Renew(ctx context.Context, run string, ttl time.Duration) error {
	data, err := proto.Marshal(&pb.GatewayLease{Run: run, TtlNs: int64(ttl)})
	if err != nil {
		return kind.Wrap(kind.Internal, "renew lease", run, err)
	}
	if err := s.conn.PutLast(ctx, streams.Attachments, gatewayPrefix+run, data); err != nil {
		return err
	}
	if err := s.Sync(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.contact.UpToDate(time.Now())
	return nil
}

// Sync waits until everything stored before the call is in the copy.
func (s *Store) Sync(ctx context.Context) error {
	want, err := s.conn.LastSeq(ctx, streams.Attachments)
	if err != nil {
		return store.Unavailable("sync", streams.Attachments, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.applied < want {
		if s.err != nil {
			return store.Unavailable("sync", streams.Attachments, s.err)
		}
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
			s.mu.Lock()
		case <-ctx.Done():
			s.mu.Lock()
			return store.Unavailable("sync", streams.Attachments, ctx.Err())
		}
	}
	return nil
}

// Session returns a session as of the copy.
func (s *Store) Session(tenant, id string) (Session, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x, ok := s.sessions[subjectOf(tenant, id)]
	return x, ok
}

// Sessions returns the sessions for which keep is true, in no order. keep must not retain its
// argument.
func (s *Store) Sessions(keep func(*Session) bool) []Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Session
	for _, x := range s.sessions {
		if keep(&x) {
			out = append(out, x)
		}
	}
	return out
}

// Holder returns what is known about the gateway of a session.
func (s *Store) Holder(x *Session) Holder {
	s.mu.Lock()
	defer s.mu.Unlock()
	lease, ok := s.gateways[x.Gateway]
	switch {
	case !ok:
		return Holder{Gone: time.Since(x.Since) > unknownAge, Since: x.Since}
	case !s.contact.Silent(&lease):
		return Holder{}
	}
	return Holder{Gone: true, Since: lease.Received.Add(lease.TTL)}
}
