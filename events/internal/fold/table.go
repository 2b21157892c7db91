package fold

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/kind"
)

// Table holds the documents of one kind in a view. The view's lock guards its fields.
type Table[K comparable, D any] struct {
	Docs  map[K]D // by key; guarded by the lock of the view
	Ended uint64  // documents that are over, including those that were dropped; it only grows

	// InUse returns the documents that something depends on, or has since a time. They do not
	// expire. It is called with the view locked; nil: no dependencies.
	InUse func(since time.Time) map[K]bool

	doc   *Document[K, D]
	p     *Progress
	swept Swept
}

// NewTable returns an empty table of a view.
func NewTable[K comparable, D any](p *Progress, k *Document[K, D]) *Table[K, D] {
	return &Table[K, D]{doc: k, p: p, Docs: make(map[K]D)}
}

// Source returns the table's stream and how the view keeps the table up to date.
func (t *Table[K, D]) Source() Source {
	return Source{Stream: t.doc.Stream, Apply: t.apply, Notify: t.doc.Notify, Expire: t.Expire, Sweep: t.sweep}
}

// apply stores what a message contains. The view is locked.
func (t *Table[K, D]) apply(m store.Message) error {
	d, err := t.doc.Decode(m)
	if err == nil {
		t.Set(d)
	}
	return err
}

// Set replaces a document. The view is locked.
func (t *Table[K, D]) Set(d D) {
	key := t.doc.Key(&d)
	if t.doc.isOver(&d) {
		if was, ok := t.Docs[key]; !ok || !t.doc.isOver(&was) {
			t.Ended++
		}
	}
	t.Docs[key] = d
}

// Get returns a document, including one that is over.
func (t *Table[K, D]) Get(key K) (D, bool) {
	t.p.mu.Lock()
	defer t.p.mu.Unlock()
	d, ok := t.Docs[key]
	return d, ok
}

// List returns the documents for which keep is true, in the kind's order. keep must not
// retain its argument.
func (t *Table[K, D]) List(keep func(*D) bool) []D {
	var out []D
	var d D // one for all: keep makes it escape
	t.p.mu.Lock()
	for _, d = range t.Docs {
		if keep(&d) {
			out = append(out, d)
		}
	}
	t.p.mu.Unlock()
	slices.SortFunc(out, t.doc.Compare)
	return out
}

// Await waits until done accepts a document or ctx ends, and returns the document at that
// moment; the zero value if it does not exist.
func (t *Table[K, D]) Await(ctx context.Context, key K, done func(*D) bool) (D, error) {
	var d D
	err := t.p.Wait(ctx, func() bool {
		d = t.Docs[key]
		return done(&d)
	})
	return d, err
}

// Change applies change to a document and stores the result, again if another writer was
// first, and returns the document that the view then has. change reports whether there is
// anything to store. It returns NotFound if the document does not exist, and one that is
// over unchanged.
func (t *Table[K, D]) Change(ctx context.Context, key K, change func(*D) bool) (D, error) {
	for {
		d, ok := t.Get(key)
		if !ok {
			return d, kind.Newf(kind.NotFound, "change "+t.doc.Name, fmt.Sprint(key), "%s '%v' not found", t.doc.Name, key)
		}
		if t.doc.isOver(&d) || !change(&d) {
			return d, nil
		}
		_, err := t.doc.Put(ctx, t.p.conn, &d)
		if err != nil && !kind.Is(err, kind.Conflict) {
			return d, err
		}
		if err := t.p.Sync(ctx, t.doc.Stream); err != nil {
			return d, err
		}
		if err == nil {
			d, _ = t.Get(key)
			return d, nil
		}
		t.dropRemoved(key, t.doc.Rev(&d))
	}
}

// dropRemoved drops a document from the view that has not changed since rev but has left the
// log: it was deleted, and its record removed, while this view was disconnected.
func (t *Table[K, D]) dropRemoved(key K, rev uint64) {
	t.p.mu.Lock()
	defer t.p.mu.Unlock()
	if d, ok := t.Docs[key]; ok && t.doc.Rev(&d) == rev {
		delete(t.Docs, key)
		t.Ended++
		t.p.announce(true)
	}
}

// Expire drops documents from the view that have been over for long enough and are not in
// use. The view is locked and has folded the log's sandboxes.
func (t *Table[K, D]) Expire(now time.Time) {
	if t.doc.Over == nil {
		return
	}
	before := now.Add(-t.doc.Keep)
	var inUse map[K]bool
	var key K
	var d D // one for all, as in list
	for key, d = range t.Docs {
		if since, over := t.doc.Over(&d); !over || !since.Before(before) {
			continue
		}
		if inUse == nil && t.InUse != nil {
			inUse = t.InUse(before)
		}
		if !inUse[key] {
			delete(t.Docs, key)
		}
	}
}

// sweep removes the documents from the log that have been over for some time and are not in
// use. A document unknown to the view was over and dropped.
func (t *Table[K, D]) sweep(ctx context.Context, age time.Duration) error {
	_, err := t.SweepOlder(ctx, age)
	return store.Unavailable("sweep", t.doc.Stream, err)
}

// SweepOlder is sweep, and returns how many documents it removed.
func (t *Table[K, D]) SweepOlder(ctx context.Context, age time.Duration) (int, error) {
	if t.doc.Find == nil {
		return 0, nil
	}
	inUse := sync.OnceValue(func() map[K]bool {
		if t.InUse == nil {
			return nil
		}
		t.p.mu.Lock()
		defer t.p.mu.Unlock()
		return t.InUse(time.Now())
	})
	return t.swept.Sweep(ctx, t.p, t.doc.Stream, age, func(subject string) bool {
		key := t.doc.Find(subject)
		d, ok := t.Get(key)
		return ok && (!t.doc.isOver(&d) || inUse()[key])
	})
}
