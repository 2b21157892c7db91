package blob

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/kind"
)

// bucketContexts is the object store of the files that builds copy: tars, named by tenant
// and the sum that the tenant supplied. A tar that is not stored again within contextAge is
// dropped; uploads beyond Config.MaxContexts are rejected.
const (
	bucketContexts = "contexts"
	contextAge     = 7 * 24 * time.Hour
)

func contextName(tenant, sum string) string { return tenant + "." + sum }

// HasContext reports whether a tenant has stored files under a sum. The caller must have
// validated the sum.
func (l *Store) HasContext(ctx context.Context, tenant, sum string) (bool, error) {
	ctx, cancel := l.conn.Attempt(ctx, partAttempt)
	defer cancel()
	_, err := l.context(ctx, tenant, sum)
	err = contextError("find files", sum, err)
	if kind.Is(err, kind.NotFound) {
		return false, nil
	}
	return err == nil, err
}

// PutContext stores a tenant's files under a sum and replaces older ones. If r fails, it
// returns r's error unwrapped and keeps the old files. It makes a single attempt, because r
// can be read only once.
func (l *Store) PutContext(ctx context.Context, tenant, sum string, r io.Reader) error {
	b, err := l.contexts(ctx)
	if err != nil {
		return contextError("store files", sum, err)
	}
	src := &source{r: r}
	err = b.Put(ctx, contextName(tenant, sum), src)
	if src.err != nil {
		return src.err
	}
	return contextError("store files", sum, err)
}

func (l *Store) contexts(ctx context.Context) (*store.Bucket, error) {
	ctx, cancel := l.conn.Attempt(ctx, partAttempt)
	defer cancel()
	return l.conn.EnsureBucket(ctx, store.BucketConfig{
		Name: bucketContexts, Description: "files that builds copy",
		Replicas: l.cfg.Replicas, MaxAge: contextAge, MaxBytes: l.cfg.MaxContexts,
	})
}

// context returns the store of files if it has those of a tenant completely.
func (l *Store) context(ctx context.Context, tenant, sum string) (*store.Bucket, error) {
	b, err := l.conn.Bucket(ctx, bucketContexts)
	if err == nil {
		_, err = b.Stat(ctx, contextName(tenant, sum))
	}
	return b, err
}

// Context reads what PutContext stored. It returns NotFound if nothing is stored. A read
// that ends in io.EOF was complete.
func (l *Store) Context(ctx context.Context, tenant, sum string) (io.ReadCloser, error) {
	b, err := l.context(ctx, tenant, sum)
	if err != nil {
		return nil, contextError("read files", sum, err)
	}
	obj, err := b.Get(ctx, contextName(tenant, sum))
	if err != nil {
		return nil, contextError("read files", sum, err)
	}
	return obj, nil
}

func contextError(op, sum string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, store.ErrNoObject), errors.Is(err, store.ErrNoBucket):
		return kind.New(kind.NotFound, op, sum, "the files are not stored: upload them again")
	case store.IsBucketFull(err):
		return &kind.Error{Op: op, ID: sum, Kind: kind.Exhausted, Err: err, Msg: "the store of build files is full: files expire after a week"}
	case store.IsFull(err):
		return &kind.Error{Op: op, ID: sum, Kind: kind.Exhausted, Err: err, Msg: "the servers' store is full"}
	}
	return store.Unavailable(op, sum, err)
}

// source records the error of its reader.
type source struct {
	r   io.Reader
	err error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}
