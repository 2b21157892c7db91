package ledger

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/millrace/millrace/events/internal/fold"
	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/usage"
)

// Store has the ledgers in the log, and a view of them. Its methods may be called concurrently. Those
// of the view need Start, the others do not.
type Store struct {
	conn     *store.Conn
	progress *fold.Progress
	books    map[string]*folded // by tenant; guarded by the lock of the view
}

// folded is the book of a tenant in the view.
type folded struct {
	entries map[string]Entry // by id
	days    map[usage.Day]Day
	topup   Topup
}

// NewStore returns a store whose view is empty until Start.
func NewStore(conn *store.Conn) *Store {
	return &Store{conn: conn, progress: fold.NewProgress(conn), books: make(map[string]*folded)}
}

// Start keeps the view up to date until ctx ends. It is called once.
func (s *Store) Start(ctx context.Context) error {
	return s.progress.Start(ctx, []fold.Source{{Stream: streams.Ledger, Apply: s.apply}})
}

// Sync waits until everything stored before the call is in the view. It retries through outages
// until ctx ends.
func (s *Store) Sync(ctx context.Context) error {
	return store.Unavailable("sync", streams.Ledger, s.progress.Sync(ctx))
}

// apply stores what a message contains. The view is locked.
func (s *Store) apply(m store.Message) error {
	tenant, part := split(m.Subject)
	b := s.books[tenant]
	if b == nil {
		b = &folded{make(map[string]Entry), make(map[usage.Day]Day), Topup{Tenant: tenant}}
		s.books[tenant] = b
	}
	switch part {
	case entryPart:
		e, err := decodeEntry(m)
		if err != nil {
			return err
		}
		b.entries[e.ID] = e
	case dayPart:
		d, err := decodeDay(m)
		if err != nil {
			return err
		}
		b.days[d.Daily.Day] = d
	case topupPart:
		t, err := decodeTopup(m)
		if err != nil {
			return err
		}
		b.topup = t
	}
	return nil
}

// Book returns the book of a tenant as of the view.
func (s *Store) Book(tenant string) Book {
	s.progress.Lock()
	defer s.progress.Unlock()
	b := s.books[tenant]
	if b == nil {
		return Book{Topup: Topup{Tenant: tenant}}
	}
	return Book{
		Entries: slices.SortedFunc(maps.Values(b.entries), func(x, y Entry) int {
			return cmp.Or(x.At.Compare(y.At), cmp.Compare(x.ID, y.ID))
		}),
		Days:  slices.SortedFunc(maps.Values(b.days), func(x, y Day) int { return cmp.Compare(x.Daily.Day, y.Daily.Day) }),
		Topup: b.topup,
	}
}

// Has reports whether the view has an entry.
func (s *Store) Has(tenant, id string) bool {
	s.progress.Lock()
	defer s.progress.Unlock()
	b := s.books[tenant]
	if b == nil {
		return false
	}
	_, ok := b.entries[id]
	return ok
}

// Topups returns the tenants that have automatic payments, or that have one on its way.
func (s *Store) Topups() (out []Topup) {
	s.progress.Lock()
	defer s.progress.Unlock()
	for _, b := range s.books {
		if b.topup.Enabled || b.topup.Phase() == Waiting {
			out = append(out, b.topup)
		}
	}
	return out
}

// Add stores an entry, unless the ledger has it, and reports whether it changed the ledger. It retries
// through outages until ctx ends.
func (s *Store) Add(ctx context.Context, e Entry) (added bool, err error) {
	if !e.valid() {
		return false, kind.Newf(kind.Invalid, "store credits", e.ID, "a %s of %d cents is not possible", e.Kind, e.Cents)
	}
	var was Entry
	for e.replaces(&was) {
		data, err := encodeEntry(&e)
		if err != nil {
			return false, err
		}
		if _, err = s.conn.Put(ctx, streams.Ledger, e.subject(), was.Rev, data); !kind.Is(err, kind.Conflict) {
			return err == nil, err
		}
		m, ok, err := s.conn.LastOf(ctx, streams.Ledger, e.subject())
		if err != nil {
			return false, store.Unavailable("read credits", e.ID, err)
		}
		if !ok {
			continue
		}
		if was, err = decodeEntry(m); err != nil {
			return false, kind.Wrap(kind.Internal, "read credits", e.ID, err)
		}
		e.At = was.At
	}
	return false, nil
}

// PutDay replaces the day whose last message has stream sequence d.Rev (0: a new day). It returns Conflict
// if another writer was first, and retries through outages until ctx ends.
func (s *Store) PutDay(ctx context.Context, tenant string, d *Day) error {
	data, err := encodeDay(d)
	if err == nil {
		_, err = s.conn.Put(ctx, streams.Ledger, daySubject(tenant, d.Daily.Day), d.Rev, data)
	}
	return err
}

// Change stores the event that decide returns for the automatic payments of a tenant, again if another
// writer was first, and returns the result. Without an event it returns the state as it is. It retries
// through outages until ctx ends.
func (s *Store) Change(ctx context.Context, tenant string, decide func(*Topup) (Body, error)) (Topup, error) {
	for {
		t := Topup{Tenant: tenant}
		m, ok, err := s.conn.LastOf(ctx, streams.Ledger, topupSubject(tenant))
		if err != nil {
			return t, store.Unavailable("read credits", tenant, err)
		}
		if ok {
			if t, err = decodeTopup(m); err != nil {
				return t, kind.Wrap(kind.Internal, "read credits", tenant, err)
			}
		}
		b, err := decide(&t)
		if err != nil || b == nil {
			return t, err
		}
		next, err := t.Apply(b)
		if err != nil {
			return t, err
		}
		data, err := encodeTopup(&next, b.Kind())
		if err == nil {
			next.Rev, err = s.conn.Put(ctx, streams.Ledger, topupSubject(tenant), t.Rev, data)
		}
		if !kind.Is(err, kind.Conflict) {
			return next, err
		}
	}
}
