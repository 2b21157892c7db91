package blob

import (
	"context"
	"errors"
	"time"

	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/template"
)

const (
	// freshPart is the age from which a part is refreshed when a caller relies on it.
	freshPart = 10 * time.Minute
	// OrphanAge is the age from which a part without a reference is removed: longer than
	// storing a copy may take.
	OrphanAge = 6 * time.Hour
)

// References are the parts that something references.
type References struct{ names map[string]bool }

// AddPart adds a part of a template.
func (r *References) AddPart(sum template.Sum) { r.add(string(sum)) }

// AddCopy adds a part of a copy.
func (r *References) AddCopy(sum template.Sum) { r.add(copyName(sum)) }

func (r *References) add(name string) {
	if r.names == nil {
		r.names = make(map[string]bool)
	}
	r.names[name] = true
}

// RemoveCopy removes those parts of a copy that nothing references.
func (l *Store) RemoveCopy(ctx context.Context, sums []template.Sum, used *References) error {
	removed := make(map[string]bool)
	for _, sum := range sums {
		name := copyName(sum)
		if used.names[name] || removed[name] {
			continue
		}
		removed[name] = true // stored once, but perhaps listed more than once
		if err := l.removePart(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// SweepParts removes the parts that nothing references and that have not been stored or
// refreshed for age, and the remains of incomplete ones. It returns their number. used is
// called after the parts were listed.
func (l *Store) SweepParts(ctx context.Context, age time.Duration, used func() (*References, error)) (int, error) {
	n, err := l.sweepParts(ctx, age, used)
	return n, store.Unavailable("sweep", bucketTemplates, err)
}

func (l *Store) sweepParts(ctx context.Context, age time.Duration, used func() (*References, error)) (int, error) {
	b, err := l.conn.Bucket(ctx, bucketTemplates)
	if errors.Is(err, store.ErrNoBucket) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	// Read chunks before names: parts stored meanwhile have a name or are young.
	chunks, err := b.Chunks(ctx)
	if err != nil {
		return 0, err
	}
	all, err := b.List(ctx)
	if err != nil {
		return 0, err
	}
	refs, err := used()
	if err != nil {
		return 0, err
	}
	n := 0
	for _, o := range all {
		b.Exclude(chunks, o)
		if refs.names[o.Name] && !o.Deleted || time.Since(o.Modified) < age {
			continue
		}
		gone, err := sweepPart(ctx, b, o.Name, age)
		if err != nil {
			return n, err
		}
		n += gone
	}
	gone, err := b.PurgeChunks(ctx, chunks, age)
	return n + gone, err
}

// sweepPart removes a part unless it was refreshed since it was listed.
func sweepPart(ctx context.Context, b *store.Bucket, name string, age time.Duration) (int, error) {
	now, err := b.Find(ctx, name)
	switch {
	case errors.Is(err, store.ErrNoObject):
		return 0, nil
	case err != nil || time.Since(now.Modified) < age:
		return 0, err
	}
	return 1, b.Purge(ctx, now)
}
