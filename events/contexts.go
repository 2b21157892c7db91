package events

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/events/kind"
)

// bucketContexts is the object store of the files that builds copy: tars, by who
// stored them and the sum that he gave them. What is not stored again for
// contextAge is dropped; what does not fit in Config.MaxContexts is refused.
const (
	bucketContexts = "contexts"
	contextAge     = 7 * 24 * time.Hour
)

func contextName(tenant, sum string) string { return tenant + "." + sum }

// HasContext reports whether a tenant has stored files under a sum. The sum is
// one that was checked.
func (l *Log) HasContext(ctx context.Context, tenant, sum string) (bool, error) {
	ctx, cancel := l.attemptFor(ctx, partAttempt)
	defer cancel()
	_, _, err := l.whole(ctx, bucketContexts, contextName(tenant, sum))
	err = contextError("find files", sum, err)
	if kind.Is(err, kind.NotFound) {
		return false, nil
	}
	return err == nil, err
}

// PutContext stores a tenant's files under a sum, in place of what it had. An
// error of r's is given as it is, and leaves what was there. It is one try: what
// r gave cannot be had again.
func (l *Log) PutContext(ctx context.Context, tenant, sum string, r io.Reader) error {
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

func (l *Log) contexts(ctx context.Context) (jetstream.ObjectStore, error) {
	ctx, cancel := l.attemptFor(ctx, partAttempt)
	defer cancel()
	return l.boundedStore(ctx, jetstream.ObjectStoreConfig{
		Bucket: bucketContexts, Description: "files that builds copy", TTL: contextAge, MaxBytes: l.maxContexts,
	})
}

// Context reads what PutContext stored. NotFound if there is nothing. A read that
// ends in io.EOF has given all of it.
func (l *Log) Context(ctx context.Context, tenant, sum string) (io.ReadCloser, error) {
	store, _, err := l.whole(ctx, bucketContexts, contextName(tenant, sum))
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
		return &kind.Error{Op: op, ID: sum, Kind: kind.Exhausted, Err: err, Msg: "there is no room for more files of builds: the oldest go when they are a week old"}
	case isFull(err):
		return &kind.Error{Op: op, ID: sum, Kind: kind.Exhausted, Err: err, Msg: "the servers' store is full"}
	}
	return unavailable(op, sum, err)
}

// source remembers why it could not be read.
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
