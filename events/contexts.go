package events

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/nats-io/nats.go/jetstream"

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
func (l *blobs) HasContext(ctx context.Context, tenant, sum string) (bool, error) {
	ctx, cancel := l.attemptFor(ctx, partAttempt)
	defer cancel()
	_, _, err := l.statComplete(ctx, bucketContexts, contextName(tenant, sum))
	err = contextError("find files", sum, err)
	if kind.Is(err, kind.NotFound) {
		return false, nil
	}
	return err == nil, err
}

// PutContext stores a tenant's files under a sum and replaces older ones. If r fails, it
// returns r's error unwrapped and keeps the old files. It makes a single attempt, because r
// can be read only once.
func (l *blobs) PutContext(ctx context.Context, tenant, sum string, r io.Reader) error {
	store, err := l.contexts(ctx)
	if err != nil {
		return contextError("store files", sum, err)
	}
	src := &source{r: r}
	_, err = store.Put(ctx, jetstream.ObjectMeta{
		Name: contextName(tenant, sum), Opts: &jetstream.ObjectMetaOptions{ChunkSize: partChunk},
	}, src)
	if src.err != nil {
		return src.err
	}
	return contextError("store files", sum, err)
}

func (l *blobs) contexts(ctx context.Context) (jetstream.ObjectStore, error) {
	ctx, cancel := l.attemptFor(ctx, partAttempt)
	defer cancel()
	return l.limitedStore(ctx, jetstream.ObjectStoreConfig{
		Bucket: bucketContexts, Description: "files that builds copy", TTL: contextAge, MaxBytes: l.maxContexts,
	})
}

// Context reads what PutContext stored. It returns NotFound if nothing is stored. A read
// that ends in io.EOF was complete.
func (l *blobs) Context(ctx context.Context, tenant, sum string) (io.ReadCloser, error) {
	store, _, err := l.statComplete(ctx, bucketContexts, contextName(tenant, sum))
	if err != nil {
		return nil, contextError("read files", sum, err)
	}
	obj, err := store.Get(ctx, contextName(tenant, sum))
	if err != nil {
		return nil, contextError("read files", sum, err)
	}
	return obj, nil
}

func contextError(op, sum string, err error) error {
	var api *jetstream.APIError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, jetstream.ErrObjectNotFound), errors.Is(err, jetstream.ErrBucketNotFound):
		return kind.New(kind.NotFound, op, sum, "the files are not stored: upload them again")
	case errors.As(err, &api) && api.ErrorCode == errMaxBytes:
		return &kind.Error{Op: op, ID: sum, Kind: kind.Exhausted, Err: err, Msg: "the store of build files is full: files expire after a week"}
	case isFull(err):
		return &kind.Error{Op: op, ID: sum, Kind: kind.Exhausted, Err: err, Msg: "the servers' store is full"}
	}
	return unavailable(op, sum, err)
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
