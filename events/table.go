package events

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/kind"
)

// document describes one kind of document. D is the document as callers see it, K is what a
// view finds it by. See "Documents" in the package's documentation.
type document[K comparable, D any] struct {
	name    string // of the kind, in errors
	stream  string // stores the documents
	notify  bool   // whether View.Changes reports the stream's messages
	subject func(*D) string
	key     func(*D) K
	compare func(a, b D) int // order of a list

	// How the document is stored. A kind whose record is a list of events has none of them:
	// its own function folds the events and sets the document in the table.
	rev    func(*D) uint64 // stream sequence that a replacement expects; nil: it is never replaced
	encode func(*D) proto.Message
	decode func(store.Message) (D, error)

	// How the document expires. Nil if it is kept for ever.
	over func(*D) (since time.Time, over bool) // whether it was deleted, and when
	keep time.Duration                         // how long a view keeps it after that

	// find returns the key of a stored document. Without it, the stream removes old
	// documents by its own limits, instead of a sweep.
	find func(subject string) K
}

// Put stores a document under compare-and-append: nothing was stored under its subject since
// its rev. It returns the new rev. It retries through outages until ctx ends and returns
// Conflict if another writer was first.
func (k *document[K, D]) put(ctx context.Context, l *store.Conn, d *D) (uint64, error) {
	data, err := k.marshal(d)
	if err != nil {
		return 0, err
	}
	var rev uint64
	if k.rev != nil {
		rev = k.rev(d)
	}
	return l.Put(ctx, k.stream, k.subject(d), rev, data)
}

// create stores a new document, ignoring its rev. It returns Conflict if its subject has a
// document that is not over.
func (k *document[K, D]) create(ctx context.Context, l *store.Conn, d *D) error {
	data, err := k.marshal(d)
	if err != nil {
		return err
	}
	return l.PutNew(ctx, k.stream, k.subject(d), data, func(m store.Message) bool {
		was, err := k.decode(m)
		return err == nil && k.isOver(&was)
	})
}

// read reads a document from the leader. ok is false if nothing is stored under the subject.
func (k *document[K, D]) read(ctx context.Context, l *store.Conn, subject string) (d D, ok bool, err error) {
	m, ok, err := l.LastOf(ctx, k.stream, subject)
	if err == nil && ok {
		d, err = k.decode(m)
	}
	return d, ok, err
}

func (k *document[K, D]) marshal(d *D) ([]byte, error) {
	data, err := proto.Marshal(k.encode(d))
	return data, kind.Wrap(kind.Internal, "put "+k.name, k.subject(d), err)
}

func (k *document[K, D]) isOver(d *D) bool {
	if k.over == nil {
		return false
	}
	_, over := k.over(d)
	return over
}

// table holds the documents of one kind in a view. The view's lock guards its fields.
type table[K comparable, D any] struct {
	*document[K, D]
	p     *progress
	docs  map[K]D
	ended uint64 // documents that are over, including those that were dropped; it only grows

	// inUse returns the documents that something depends on, or has since a time. They do not
	// expire. It is called with the view locked; nil: no dependencies.
	inUse func(since time.Time) map[K]bool

	swept swept
}

func newTable[K comparable, D any](p *progress, k *document[K, D]) *table[K, D] {
	return &table[K, D]{document: k, p: p, docs: make(map[K]D)}
}

// documentTable is a table of any kind, as far as a view updates it.
type documentTable interface {
	fold() fold
	expire(now time.Time)
	sweep(ctx context.Context, age time.Duration) error
}

// fold returns how the view keeps the table up to date.
func (t *table[K, D]) fold() fold { return fold{t.stream, t.apply, t.notify} }

// apply stores what a message contains. The view is locked.
func (t *table[K, D]) apply(m store.Message) error {
	d, err := t.decode(m)
	if err == nil {
		t.set(d)
	}
	return err
}

// set replaces a document. The view is locked.
func (t *table[K, D]) set(d D) {
	key := t.key(&d)
	if t.isOver(&d) {
		if was, ok := t.docs[key]; !ok || !t.isOver(&was) {
			t.ended++
		}
	}
	t.docs[key] = d
}

// get returns a document, including one that is over.
func (t *table[K, D]) get(key K) (D, bool) {
	t.p.mu.Lock()
	defer t.p.mu.Unlock()
	d, ok := t.docs[key]
	return d, ok
}

// list returns the documents for which keep is true, in the kind's order. keep must not
// retain its argument.
func (t *table[K, D]) list(keep func(*D) bool) []D {
	var out []D
	var d D // one for all: keep makes it escape
	t.p.mu.Lock()
	for _, d = range t.docs {
		if keep(&d) {
			out = append(out, d)
		}
	}
	t.p.mu.Unlock()
	slices.SortFunc(out, t.compare)
	return out
}

// await waits until done accepts a document or ctx ends, and returns the document at that
// moment; the zero value if it does not exist.
func (t *table[K, D]) await(ctx context.Context, key K, done func(*D) bool) (D, error) {
	var d D
	err := t.p.wait(ctx, func() bool {
		d = t.docs[key]
		return done(&d)
	})
	return d, err
}

// change applies change to a document and stores the result, again if another writer was
// first, and returns the document that the view then has. change reports whether there is
// anything to store. It returns NotFound if the document does not exist, and one that is
// over unchanged.
func (t *table[K, D]) change(ctx context.Context, key K, change func(*D) bool) (D, error) {
	for {
		d, ok := t.get(key)
		if !ok {
			return d, kind.Newf(kind.NotFound, "change "+t.name, fmt.Sprint(key), "%s '%v' not found", t.name, key)
		}
		if t.isOver(&d) || !change(&d) {
			return d, nil
		}
		_, err := t.put(ctx, t.p.l.conn, &d)
		if err != nil && !kind.Is(err, kind.Conflict) {
			return d, err
		}
		if err := t.p.Sync(ctx); err != nil {
			return d, err
		}
		if err == nil {
			d, _ = t.get(key)
			return d, nil
		}
		t.dropRemoved(key, t.rev(&d))
	}
}

// dropRemoved drops a document from the view that has not changed since rev but has left the
// log: it was deleted, and its record removed, while this view was disconnected.
func (t *table[K, D]) dropRemoved(key K, rev uint64) {
	t.p.mu.Lock()
	defer t.p.mu.Unlock()
	if d, ok := t.docs[key]; ok && t.rev(&d) == rev {
		delete(t.docs, key)
		t.ended++
		t.p.announce(true)
	}
}

// expire drops documents from the view that have been over for long enough and are not in
// use. The view is locked and has folded the log's sandboxes.
func (t *table[K, D]) expire(now time.Time) {
	if t.over == nil {
		return
	}
	before := now.Add(-t.keep)
	var inUse map[K]bool
	var key K
	var d D // one for all, as in list
	for key, d = range t.docs {
		if since, over := t.over(&d); !over || !since.Before(before) {
			continue
		}
		if inUse == nil && t.inUse != nil {
			inUse = t.inUse(before)
		}
		if !inUse[key] {
			delete(t.docs, key)
		}
	}
}

// sweep removes the documents from the log that have been over for some time and are not in
// use. A document unknown to the view was over and dropped.
func (t *table[K, D]) sweep(ctx context.Context, age time.Duration) error {
	_, err := t.sweepOlder(ctx, age)
	return store.Unavailable("sweep", t.stream, err)
}

func (t *table[K, D]) sweepOlder(ctx context.Context, age time.Duration) (int, error) {
	if t.find == nil {
		return 0, nil
	}
	inUse := sync.OnceValue(func() map[K]bool {
		if t.inUse == nil {
			return nil
		}
		t.p.mu.Lock()
		defer t.p.mu.Unlock()
		return t.inUse(time.Now())
	})
	return t.swept.sweep(ctx, t.p, t.stream, age, func(subject string) bool {
		key := t.find(subject)
		d, ok := t.get(key)
		return ok && (!t.isOver(&d) || inUse()[key])
	})
}
