package blob

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/kind"
)

// bucketViews is the object store of snapshots of views. It is created when the first one is
// stored, and nothing depends on its content.
const (
	bucketViews = "views"
	maxViews    = 256 << 20 // millions of processes
)

// Views keeps snapshots of views. Its methods make a single attempt.
type Views struct{ l *Store }

// Views returns the snapshots of views.
func (l *Store) Views() Views { return Views{l} }

// Get reads a part of a snapshot, or returns NotFound.
func (v Views) Get(ctx context.Context, name string) ([]byte, error) {
	b, err := v.l.conn.Bucket(ctx, bucketViews)
	if err != nil {
		return nil, viewsError("read snapshot", name, err)
	}
	data, err := b.GetBytes(ctx, name)
	return data, viewsError("read snapshot", name, err)
}

// Put stores a part of a snapshot, or replaces it.
func (v Views) Put(ctx context.Context, name string, data []byte) error {
	b, err := v.l.conn.EnsureBucket(ctx, store.BucketConfig{
		Name: bucketViews, Description: "snapshots of views, which nothing depends on",
		Replicas: v.l.cfg.Replicas, MaxBytes: maxViews,
	})
	if err == nil {
		err = b.Put(ctx, name, bytes.NewReader(data))
	}
	return viewsError("store snapshot", name, err)
}

// List returns the names of all parts, and when they were stored.
func (v Views) List(ctx context.Context) (map[string]time.Time, error) {
	b, err := v.l.conn.Bucket(ctx, bucketViews)
	if errors.Is(err, store.ErrNoBucket) {
		return nil, nil
	}
	if err != nil {
		return nil, viewsError("list snapshots", bucketViews, err)
	}
	all, err := b.List(ctx)
	names := make(map[string]time.Time, len(all))
	for _, o := range all {
		if !o.Deleted {
			names[o.Name] = o.Modified
		}
	}
	return names, viewsError("list snapshots", bucketViews, err)
}

// Remove removes a part.
func (v Views) Remove(ctx context.Context, name string) error {
	b, err := v.l.conn.Bucket(ctx, bucketViews)
	if err != nil {
		return viewsError("remove snapshot", name, err)
	}
	o, err := b.Find(ctx, name)
	if err == nil {
		err = b.Purge(ctx, o)
	}
	return viewsError("remove snapshot", name, err)
}

func viewsError(op, name string, err error) error {
	if errors.Is(err, store.ErrNoBucket) || errors.Is(err, store.ErrNoObject) {
		return kind.New(kind.NotFound, op, name, "the snapshot is not stored")
	}
	return kind.Wrap(kind.Unavailable, op, name, err)
}
