package conversation

import (
	"cmp"
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/internal/fold"
	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
)

// Store has the conversations in the log, and a view of them. Its methods may be called concurrently,
// after Start.
type Store struct {
	conn     *store.Conn
	progress *fold.Progress
	table    *fold.Table[ID, State]
	swept    fold.Swept
	serving  map[sandbox.ID]ID // of the current sandboxes; guarded by the lock of the view
}

// NewStore returns a store whose view is empty until Start.
func NewStore(conn *store.Conn) *Store {
	p := fold.NewProgress(conn)
	return &Store{conn: conn, progress: p, table: fold.NewTable(p, docs), serving: make(map[sandbox.ID]ID)}
}

// Start keeps the view up to date until ctx ends. It is called once.
func (s *Store) Start(ctx context.Context) error {
	return s.progress.Start(ctx, []fold.Source{{Stream: streams.Conversations, Apply: s.apply, Notify: true}})
}

// Changes returns a channel that receives a value after changes of the view, until stop is called.
func (s *Store) Changes() (changed <-chan struct{}, stop func()) { return s.progress.Changes() }

// apply stores what a message contains. The view is locked.
func (s *Store) apply(m store.Message) error {
	c, err := decode(m)
	if err != nil {
		return err
	}
	s.set(&c)
	return nil
}

// set replaces a conversation, unless the view has a later state. The view is locked.
func (s *Store) set(c *State) {
	was := s.table.Docs[c.ID]
	if was.Rev >= c.Rev {
		return
	}
	delete(s.serving, was.Sandbox)
	s.serving[c.Sandbox] = c.ID
	s.table.Set(*c)
}

// Sync waits until everything stored before the call is in the view. It retries through outages
// until ctx ends.
func (s *Store) Sync(ctx context.Context) error {
	return store.Unavailable("sync", streams.Conversations, s.progress.Sync(ctx))
}

// Get returns a conversation as of the view.
func (s *Store) Get(id ID) (State, bool) { return s.table.Get(id) }

// Of returns the conversation that a sandbox serves, or served until it ended and was not replaced.
func (s *Store) Of(sbx sandbox.ID) (State, bool) {
	s.progress.Lock()
	defer s.progress.Unlock()
	c, ok := s.table.Docs[s.serving[sbx]]
	return c, ok
}

// List returns the conversations for which keep is true. keep must not retain its argument.
func (s *Store) List(keep func(*State) bool) []State { return s.table.List(keep) }

// Await waits until done accepts a conversation or ctx ends, and returns it.
func (s *Store) Await(ctx context.Context, id ID, done func(*State) bool) (State, error) {
	return s.table.Await(ctx, id, done)
}

// Append applies an event and stores the result. It returns Conflict if the conversation changed since c was
// read; the view then has what the log has. It returns Invalid if the event cannot happen. It
// retries through outages until ctx ends.
func (s *Store) Append(ctx context.Context, c *State, b Body) (State, error) {
	to, err := c.Apply(b, time.Now())
	if err != nil {
		return to, err
	}
	data, err := proto.Marshal(encode(&to, b.kind()))
	if err != nil {
		return to, kind.Wrap(kind.Internal, "append", string(c.ID), err)
	}
	to.Rev, err = s.conn.Put(ctx, streams.Conversations, subjectOf(&to), c.Rev, data)
	switch {
	case err == nil:
		s.progress.Lock()
		defer s.progress.Unlock()
		s.set(&to)
	case kind.Is(err, kind.Conflict):
		err = s.reread(ctx, err, c)
	}
	return to, err
}

// Change appends the events that decide returns until no other writer is first. Without an event it
// returns the conversation as it is.
func (s *Store) Change(ctx context.Context, id ID, decide func(*State) (Body, error)) (State, error) {
	for {
		c, ok := s.Get(id)
		if !ok {
			return c, NotFound(id)
		}
		b, err := decide(&c)
		if err != nil || b == nil {
			return c, err
		}
		to, err := s.Append(ctx, &c, b)
		if !kind.Is(err, kind.Conflict) {
			return to, err
		}
	}
}

// reread brings the view of a conversation up to date after a conflict. The view may have what another
// gateway has removed from the log. It returns the conflict, or the error of reading.
func (s *Store) reread(ctx context.Context, conflict error, c *State) error {
	m, ok, err := s.conn.LastOf(ctx, streams.Conversations, subjectOf(c))
	if err != nil {
		return store.Unavailable("read", string(c.ID), err)
	}
	s.progress.Lock()
	defer s.progress.Unlock()
	switch {
	case ok:
		err = s.apply(m)
	case s.table.Docs[c.ID].Rev == c.Rev:
		s.drop(c.ID)
	}
	return cmp.Or(err, conflict)
}

// drop removes a conversation from the view, which is locked.
func (s *Store) drop(id ID) {
	delete(s.serving, s.table.Docs[id].Sandbox)
	delete(s.table.Docs, id)
}

// Sweep removes conversations from the view, and then from the log, [Keep] after their end.
func (s *Store) Sweep(ctx context.Context, now time.Time) error {
	s.progress.Lock()
	for id, c := range s.table.Docs {
		if c.Phase == Over && now.Sub(c.Ended) > Keep {
			s.drop(id)
		}
	}
	s.progress.Unlock()
	_, err := s.swept.Sweep(ctx, s.progress, streams.Conversations, Keep, func(subject string) bool {
		_, found := s.Get(docs.Find(subject))
		return found
	})
	return store.Unavailable("sweep", streams.Conversations, err)
}
