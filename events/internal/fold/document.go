package fold

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/kind"
)

// Document describes one kind of document. D is the document as callers see it, K is what a
// view finds it by.
type Document[K comparable, D any] struct {
	Name    string // of the kind, in errors
	Stream  string // stores the documents
	Notify  bool   // whether Changes of the view reports the stream's messages
	Subject func(*D) string
	Key     func(*D) K
	Compare func(a, b D) int // order of a list

	// How the document is stored. A kind whose record is a list of events has none of them:
	// its own function folds the events and sets the document in the table.
	Rev    func(*D) uint64 // stream sequence that a replacement expects; nil: it is never replaced
	Encode func(*D) proto.Message
	Decode func(store.Message) (D, error)

	// How the document expires. Nil if it is kept for ever.
	Over func(*D) (since time.Time, over bool) // whether it was deleted, and when
	Keep time.Duration                         // how long a view keeps it after that

	// Find returns the key of a stored document. Without it, the stream removes old
	// documents by its own limits, instead of a sweep.
	Find func(subject string) K
}

// Put stores a document under compare-and-append: nothing was stored under its subject since
// its rev. It returns the new rev. It retries through outages until ctx ends and returns
// Conflict if another writer was first.
func (k *Document[K, D]) Put(ctx context.Context, conn *store.Conn, d *D) (uint64, error) {
	data, err := k.marshal(d)
	if err != nil {
		return 0, err
	}
	var rev uint64
	if k.Rev != nil {
		rev = k.Rev(d)
	}
	return conn.Put(ctx, k.Stream, k.Subject(d), rev, data)
}

// Create stores a new document, ignoring its rev. It returns Conflict if its subject has a
// document that is not over.
func (k *Document[K, D]) Create(ctx context.Context, conn *store.Conn, d *D) error {
	data, err := k.marshal(d)
	if err != nil {
		return err
	}
	return conn.PutNew(ctx, k.Stream, k.Subject(d), data, func(m store.Message) bool {
		was, err := k.Decode(m)
		return err == nil && k.isOver(&was)
	})
}

// Read reads a document from the leader. ok is false if nothing is stored under the subject.
func (k *Document[K, D]) Read(ctx context.Context, conn *store.Conn, subject string) (d D, ok bool, err error) {
	m, ok, err := conn.LastOf(ctx, k.Stream, subject)
	if err == nil && ok {
		d, err = k.Decode(m)
	}
	return d, ok, err
}

func (k *Document[K, D]) marshal(d *D) ([]byte, error) {
	data, err := proto.Marshal(k.Encode(d))
	return data, kind.Wrap(kind.Internal, "put "+k.Name, k.Subject(d), err)
}

func (k *Document[K, D]) isOver(d *D) bool {
	if k.Over == nil {
		return false
	}
	_, over := k.Over(d)
	return over
}
