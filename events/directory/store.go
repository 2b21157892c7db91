package directory

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/millrace/millrace/events/account"
	"github.com/millrace/millrace/events/internal/fold"
	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/kind"
)

// Store has the accounts in the log, and a view of them. Its methods may be called concurrently,
// after Start.
type Store struct {
	conn     *store.Conn
	progress *fold.Progress
	accounts *fold.Table[account.ID, account.State]
	sources  *fold.Table[string, account.Source]
	keys     *fold.Table[uint32, account.TokenKey]
	tenants  map[string]account.ID // guarded by the lock of the view
	swept    fold.Swept
}

// New returns a store whose view is empty until Start.
func New(conn *store.Conn) *Store {
	p := fold.NewProgress(conn)
	return &Store{
		conn: conn, progress: p, tenants: make(map[string]account.ID),
		accounts: fold.NewTable(p, accountDocs), sources: fold.NewTable(p, sourceDocs), keys: fold.NewTable(p, keyDocs),
	}
}

// Start keeps the view up to date until ctx ends. It is called once.
func (s *Store) Start(ctx context.Context) error {
	return s.progress.Start(ctx, []fold.Source{{Stream: streams.Users, Apply: s.apply}})
}

// apply stores what a message contains. The view is locked.
func (s *Store) apply(m store.Message) error {
	switch {
	case strings.HasPrefix(m.Subject, sourcePrefix):
		return s.sources.Source().Apply(m)
	case strings.HasPrefix(m.Subject, keyPrefix):
		return s.keys.Source().Apply(m)
	}
	a, err := decodeAccount(m)
	if err != nil {
		return err
	}
	s.accounts.Set(a)
	if a.Tenant != "" {
		s.tenants[a.Tenant] = a.Address.ID()
	}
	return nil
}

// Sync waits until everything stored before the call is in the view. It retries through outages
// until ctx ends.
func (s *Store) Sync(ctx context.Context) error {
	return store.Unavailable("sync", streams.Users, s.progress.Sync(ctx))
}

// Account returns the account of an address as of the view. An account that does not exist is
// empty but for the address.
func (s *Store) Account(of account.Address) account.State {
	a, ok := s.accounts.Get(of.ID())
	if !ok {
		a.Address = of
	}
	return a
}

// AccountOf returns the account that has a tenant.
func (s *Store) AccountOf(tenant string) (account.State, bool) {
	s.progress.Lock()
	id, ok := s.tenants[tenant]
	s.progress.Unlock()
	if !ok {
		return account.State{}, false
	}
	return s.accounts.Get(id)
}

// Append applies an event to an account and stores the result. It returns Conflict if the
// account changed since a was read; the view then has what the log has. It returns Invalid if the event
// cannot happen. It retries through outages until ctx ends.
func (s *Store) Append(ctx context.Context, a *account.State, b account.Body) (account.State, error) {
	next, err := a.Apply(b)
	if err != nil {
		return next, err
	}
	next.Rev, err = s.put(ctx, accountSubject(next.Address), a.Rev, encodeAccount(&next, b))
	if !kind.Is(err, kind.Conflict) {
		return next, err
	}
	id := next.Address.ID()
	return next, s.reread(ctx, err, accountSubject(next.Address), a.Rev,
		func() uint64 { return s.accounts.Docs[id].Rev },
		func() { delete(s.accounts.Docs, id) })
}

// reread brings the view of a subject up to date after a conflict with stream sequence rev: the
// view may have dropped what is still in the log, and may have what another gateway has removed
// from it. current returns the view's stream sequence, drop removes the subject from the view. It
// returns the conflict, or the error of reading.
func (s *Store) reread(ctx context.Context, conflict error, subject string, rev uint64, current func() uint64, drop func()) error {
	m, ok, err := s.conn.LastOf(ctx, streams.Users, subject)
	if err != nil {
		return store.Unavailable("read", subject, err)
	}
	s.progress.Lock()
	defer s.progress.Unlock()
	switch {
	case ok && m.Seq > current():
		err = s.apply(m)
	case !ok && current() == rev:
		drop()
	}
	return cmp.Or(err, conflict)
}

// Source returns a network address as of the view.
func (s *Store) Source(id string) account.Source {
	x, _ := s.sources.Get(id)
	x.ID = id
	return x
}

// PutSource replaces the source with stream sequence x.Rev. It returns Conflict as Append does.
func (s *Store) PutSource(ctx context.Context, x *account.Source) error {
	_, err := s.put(ctx, sourcePrefix+x.ID, x.Rev, encodeSource(x))
	if !kind.Is(err, kind.Conflict) {
		return err
	}
	return s.reread(ctx, err, sourcePrefix+x.ID, x.Rev,
		func() uint64 { return s.sources.Docs[x.ID].Rev },
		func() { delete(s.sources.Docs, x.ID) })
}

// TokenKeys returns the keys of tokens, oldest first.
func (s *Store) TokenKeys() []account.TokenKey {
	return s.keys.List(func(*account.TokenKey) bool { return true })
}

// PutTokenKey stores a key with the number after the last key's. It returns Conflict if a key
// with that number exists.
func (s *Store) PutTokenKey(ctx context.Context, k *account.TokenKey) error {
	_, err := keyDocs.Put(ctx, s.conn, k)
	return err
}

// sweepAge is the age at which records may be removed.
const sweepAge = 2 * account.CodePeriod

// Sweep removes accounts that were never verified, and old counts, from the view and then from
// the log.
func (s *Store) Sweep(ctx context.Context, now time.Time) error {
	s.progress.Lock()
	for id, a := range s.accounts.Docs {
		if a.Abandoned(now.Add(-sweepAge)) {
			delete(s.accounts.Docs, id)
		}
	}
	for id, x := range s.sources.Docs {
		if now.Sub(x.Changed) > sweepAge {
			delete(s.sources.Docs, id)
		}
	}
	s.progress.Unlock()
	_, err := s.swept.Sweep(ctx, s.progress, streams.Users, sweepAge, s.needed)
	return store.Unavailable("sweep", streams.Users, err)
}

// needed reports whether a subject must stay in the log.
func (s *Store) needed(subject string) bool {
	if id, ok := strings.CutPrefix(subject, sourcePrefix); ok {
		_, found := s.sources.Get(id)
		return found
	}
	if id, ok := strings.CutPrefix(subject, accountPrefix); ok {
		_, found := s.accounts.Get(account.ID(id))
		return found
	}
	return true
}
