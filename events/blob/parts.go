package blob

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/template"
)

// bucketTemplates is the object store of the parts of templates and of copies of hosts'
// files.
const bucketTemplates = "templates"

// copyPrefix begins the names of the parts of copies. Clients cannot request them by sum,
// as they can parts of templates.
const copyPrefix = "kept."

// partAttempt bounds one attempt to store or read a part.
const partAttempt = time.Minute

// PutPart stores a part of a template, compressed by the caller, under its sum. It leaves
// an existing part alone. It returns Exhausted if the store is full.
func (l *Store) PutPart(ctx context.Context, sum template.Sum, data []byte) error {
	return l.putPart(ctx, string(sum), data, false)
}

// putPart stores a part. It only refreshes an existing one, so that SweepParts does not
// remove it, unless replace is set.
func (l *Store) putPart(ctx context.Context, name string, data []byte, replace bool) error {
	return l.withParts(ctx, "store files", name, true, func(ctx context.Context, b *store.Bucket) error {
		err := refreshPart(ctx, b, name, freshPart)
		if err == nil && !replace || err != nil && !errors.Is(err, store.ErrNoObject) {
			return err
		}
		if err = b.Put(ctx, name, bytes.NewReader(data)); err != nil && store.IsFull(err) {
			if half, hErr := b.Find(ctx, name); hErr == nil {
				b.Purge(ctx, half) //nolint:errcheck // an incomplete part is treated as missing, and swept later
			}
		}
		return err
	})
}

// refreshPart finds a part and refreshes it if it is older than age: the caller may be about to
// reference it.
func refreshPart(ctx context.Context, b *store.Bucket, name string, age time.Duration) error {
	o, err := b.Stat(ctx, name)
	if err == nil && time.Since(o.Modified) >= age {
		if err = b.Touch(ctx, name); store.IsFull(err) {
			return nil // it exists, with its old age
		}
	}
	return err
}

// HasPart reports whether a part is stored. Like PutPart, it keeps an existing part from
// being swept for a while.
func (l *Store) HasPart(ctx context.Context, sum template.Sum) (bool, error) {
	return l.hasPart(ctx, string(sum), freshPart)
}

func (l *Store) hasPart(ctx context.Context, name string, age time.Duration) (bool, error) {
	err := l.withParts(ctx, "find files", name, false, func(ctx context.Context, b *store.Bucket) error {
		return refreshPart(ctx, b, name, age)
	})
	if kind.Is(err, kind.NotFound) {
		return false, nil
	}
	return err == nil, err
}

// Part reads a part as it was passed to PutPart. It returns NotFound if the part is not
// stored, Invalid if the servers detect damage. The caller must check the sum.
func (l *Store) Part(ctx context.Context, sum template.Sum) ([]byte, error) {
	return l.getPart(ctx, string(sum))
}

func (l *Store) getPart(ctx context.Context, name string) ([]byte, error) {
	var data []byte
	err := l.withParts(ctx, "read files", name, false, func(ctx context.Context, b *store.Bucket) (err error) {
		if _, err = b.Stat(ctx, name); err == nil {
			data, err = b.GetBytes(ctx, name)
		}
		return err
	})
	return data, err
}

// RemovePart removes a part if it exists.
func (l *Store) RemovePart(ctx context.Context, sum template.Sum) error {
	return l.removePart(ctx, string(sum))
}

func (l *Store) removePart(ctx context.Context, name string) error {
	err := l.withParts(ctx, "remove files", name, false, func(ctx context.Context, b *store.Bucket) error {
		o, err := b.Find(ctx, name)
		if err != nil {
			return err
		}
		return b.Purge(ctx, o)
	})
	if kind.Is(err, kind.NotFound) {
		return nil
	}
	return err
}

// withParts retries do through outages until ctx ends. If wanted, it creates a missing
// store.
func (l *Store) withParts(ctx context.Context, op, name string, wanted bool, do func(context.Context, *store.Bucket) error) error {
	for try := 0; ; {
		err := l.tryParts(ctx, wanted, do)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, store.ErrNoObject), errors.Is(err, store.ErrNoBucket):
			return kind.New(kind.NotFound, op, name, "the files are not stored any more: make the template or snapshot again")
		case errors.Is(err, store.ErrDamaged):
			return kind.New(kind.Invalid, op, name, "the files are damaged in the servers' store")
		case store.IsFull(err):
			return &kind.Error{Op: op, ID: name, Kind: kind.Exhausted, Err: err,
				Msg: "the servers' store is full: remove templates or snapshots, or raise the size limit of the stream OBJ_templates"}
		}
		if !l.conn.Backoff(ctx, &try) {
			return store.Unavailable(op, name, err)
		}
	}
}

func (l *Store) tryParts(ctx context.Context, wanted bool, do func(context.Context, *store.Bucket) error) error {
	ctx, cancel := l.conn.Attempt(ctx, partAttempt)
	defer cancel()
	b, err := l.conn.Bucket(ctx, bucketTemplates)
	if wanted && errors.Is(err, store.ErrNoBucket) {
		b, err = l.conn.EnsureBucket(ctx, store.BucketConfig{
			Name: bucketTemplates, Description: "parts of templates and snapshots, by their SHA-256",
			Replicas: l.cfg.Replicas, MaxBytes: l.cfg.MaxStore,
		})
	}
	if err != nil {
		return err
	}
	return do(ctx, b)
}
