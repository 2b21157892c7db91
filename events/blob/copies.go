package blob

import (
	"context"

	"github.com/millrace/millrace/events/template"
)

// CopyStore is the store of the parts of copies of hosts' files.
// Its methods are like those of [Store] for parts of templates.
type CopyStore struct{ l *Store }

// CopyStore returns the store of copies.
func (l *Store) CopyStore() CopyStore { return CopyStore{l} }

func copyName(sum template.Sum) string { return copyPrefix + string(sum) }

// Put stores a part. It leaves an existing part alone unless replace is set. It returns
// Exhausted if the store is full.
func (k CopyStore) Put(ctx context.Context, sum template.Sum, packed []byte, replace bool) error {
	return k.l.putPart(ctx, copyName(sum), packed, replace)
}

// Has reports whether a part is stored.
func (k CopyStore) Has(ctx context.Context, sum template.Sum) (bool, error) {
	return k.l.hasPart(ctx, copyName(sum), freshPart)
}

// Part reads a part. The caller must check its sum. Errors are those of [Store.Part].
func (k CopyStore) Part(ctx context.Context, sum template.Sum) ([]byte, error) {
	return k.l.getPart(ctx, copyName(sum))
}
