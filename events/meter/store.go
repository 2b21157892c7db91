package meter

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/events/internal/fold"
	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/usage"
)

// Store has the usage in the log, and a view of it. Its methods may be called concurrently. Those
// of the view need Start, the others do not.
type Store struct {
	conn     *store.Conn
	progress *fold.Progress
	facts    map[string]map[string]usage.Fact // by tenant and id; guarded by the lock of the view
	swept    fold.Swept
}

// NewStore returns a store whose view is empty until Start.
func NewStore(conn *store.Conn) *Store {
	return &Store{conn: conn, progress: fold.NewProgress(conn), facts: make(map[string]map[string]usage.Fact)}
}

// Start keeps the view up to date until ctx ends. It is called once.
func (s *Store) Start(ctx context.Context) error {
	return s.progress.Start(ctx, []fold.Source{{Stream: streams.Meter, Apply: s.apply}})
}

// Sync waits until everything stored before the call is in the view. It retries through outages
// until ctx ends.
func (s *Store) Sync(ctx context.Context) error {
	return store.Unavailable("sync", streams.Meter, s.progress.Sync(ctx))
}

// apply stores what a message contains. The view is locked.
func (s *Store) apply(m store.Message) error {
	f, err := decodeFact(m)
	if err != nil {
		return err
	}
	of := s.facts[f.Tenant]
	if of == nil {
		of = make(map[string]usage.Fact)
		s.facts[f.Tenant] = of
	}
	of[f.ID] = f
	return nil
}

// Facts returns the facts of a tenant as of the view, in no particular order.
func (s *Store) Facts(tenant string) []usage.Fact {
	s.progress.Lock()
	defer s.progress.Unlock()
	return slices.Collect(maps.Values(s.facts[tenant]))
}

// Fact returns the fact of a sandbox or a conversation as of the view.
func (s *Store) Fact(tenant, id string) (usage.Fact, bool) {
	s.progress.Lock()
	defer s.progress.Unlock()
	f, ok := s.facts[tenant][id]
	return f, ok
}

// Await waits until done accepts the fact of a sandbox or a conversation, or ctx ends. The fact is
// empty while it does not exist.
func (s *Store) Await(ctx context.Context, tenant, id string, done func(*usage.Fact) bool) (f usage.Fact, err error) {
	err = s.progress.Wait(ctx, func() bool {
		f = s.facts[tenant][id]
		return done(&f)
	})
	return f, err
}

// Open returns the facts that have not ended, as of the view.
func (s *Store) Open() (open []usage.Fact) {
	s.progress.Lock()
	defer s.progress.Unlock()
	for _, of := range s.facts {
		for id := range of {
			if f := of[id]; !f.Over() {
				open = append(open, f)
			}
		}
	}
	return open
}

// Tenants returns the tenants that have facts in the view.
func (s *Store) Tenants() []string {
	s.progress.Lock()
	defer s.progress.Unlock()
	return slices.Collect(maps.Keys(s.facts))
}

// Keep is how long a fact is kept after it was stored last. The sandboxes of dashboards need it for 30 days.
const Keep = 33 * 24 * time.Hour

// Sweep removes facts that have ended and are older than age, and for which done returns true, from the
// log and from the view. done is called with the view locked.
func (s *Store) Sweep(ctx context.Context, age time.Duration, done func(*usage.Fact) bool) (n int, err error) {
	removable := func(f *usage.Fact) bool { return f.Over() && done(f) }
	n, err = s.swept.Sweep(ctx, s.progress, streams.Meter, age, func(subject string) bool {
		tenant, id, _ := strings.Cut(strings.TrimPrefix(subject, factPrefix), ".")
		s.progress.Lock()
		defer s.progress.Unlock()
		f, ok := s.facts[tenant][id]
		return ok && !removable(&f)
	})
	s.progress.Lock()
	defer s.progress.Unlock()
	for tenant, of := range s.facts {
		maps.DeleteFunc(of, func(_ string, f usage.Fact) bool { return time.Since(f.Ended) > age && removable(&f) })
		if len(of) == 0 {
			delete(s.facts, tenant)
		}
	}
	return n, err
}

// Read reads the fact of a sandbox or a conversation from the log. ok is false if it does not
// exist.
func (s *Store) Read(ctx context.Context, tenant, id string) (f usage.Fact, ok bool, err error) {
	m, ok, err := s.conn.LastOf(ctx, streams.Meter, subjectOf(tenant, id))
	if err != nil {
		return f, false, store.Unavailable("read usage", id, err)
	}
	if ok {
		f, err = decodeFact(m)
	}
	return f, ok, err
}

// Change stores what change makes of the fact of a sandbox or a conversation, again if another
// writer was first, and returns the stored fact. ok is false if it does not exist. change reports
// whether there is anything to store. Change retries through outages until ctx ends.
func (s *Store) Change(ctx context.Context, tenant, id string, change func(f usage.Fact, ok bool) (usage.Fact, bool)) (usage.Fact, error) {
	for {
		f, ok, err := s.Read(ctx, tenant, id)
		if err != nil {
			return f, err
		}
		next, changed := change(f, ok)
		if !changed {
			return f, nil
		}
		next.Rev = f.Rev
		if err = s.Put(ctx, &next); !kind.Is(err, kind.Conflict) {
			return next, err
		}
	}
}

// Put replaces the fact whose last message has stream sequence f.Rev (0: a new fact) and sets
// f.Rev. It returns Conflict if another writer was first, and retries through outages until ctx
// ends.
func (s *Store) Put(ctx context.Context, f *usage.Fact) error {
	data, err := encodeFact(f)
	if err != nil {
		return err
	}
	rev, err := s.conn.Put(ctx, streams.Meter, subjectOf(f.Tenant, f.ID), f.Rev, data)
	if err == nil {
		f.Rev = rev
	}
	return err
}
