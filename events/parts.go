package events

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/template"
)

// bucketTemplates is the object store of templates' parts. A part is an object of
// its own, by its sum: what several templates share is stored once, and who was
// cut off goes on with the parts that lack.
const bucketTemplates = "templates"

const (
	partAttempt = time.Minute // one try to store or read a part
	partChunk   = 512 << 10   // bytes of a message
)

// JetStream's codes for a store that is full.
const (
	errNoResources  jetstream.ErrorCode = 10023
	errMaxBytes     jetstream.ErrorCode = 10077
	errStorageLimit jetstream.ErrorCode = 10028
)

// PutPart stores a part of a template, as the caller has packed it, under its
// sum; a part that is there is left alone. Exhausted where the store is full.
func (l *Log) PutPart(ctx context.Context, sum template.Sum, data []byte) error {
	return l.withParts(ctx, "store template", sum, true, func(ctx context.Context, store jetstream.ObjectStore) error {
		if _, err := store.GetInfo(ctx, string(sum)); !errors.Is(err, jetstream.ErrObjectNotFound) {
			return err
		}
		meta := jetstream.ObjectMeta{Name: string(sum), Opts: &jetstream.ObjectMetaOptions{ChunkSize: partChunk}}
		_, err := store.Put(ctx, meta, bytes.NewReader(data))
		return err
	})
}

// HasPart reports whether a part is stored.
func (l *Log) HasPart(ctx context.Context, sum template.Sum) (bool, error) {
	err := l.withParts(ctx, "find template", sum, false, func(ctx context.Context, store jetstream.ObjectStore) error {
		_, err := store.GetInfo(ctx, string(sum))
		return err
	})
	if kind.Is(err, kind.NotFound) {
		return false, nil
	}
	return err == nil, err
}

// Part reads a part as PutPart was given it. NotFound if it is not stored. The
// caller checks its sum.
func (l *Log) Part(ctx context.Context, sum template.Sum) ([]byte, error) {
	var data []byte
	err := l.withParts(ctx, "read template", sum, false, func(ctx context.Context, store jetstream.ObjectStore) (err error) {
		data, err = store.GetBytes(ctx, string(sum))
		return err
	})
	return data, err
}

// RemovePart removes a part; one that is not there is removed.
func (l *Log) RemovePart(ctx context.Context, sum template.Sum) error {
	err := l.withParts(ctx, "remove template", sum, false, func(ctx context.Context, store jetstream.ObjectStore) error {
		return store.Delete(ctx, string(sum))
	})
	if kind.Is(err, kind.NotFound) {
		return nil
	}
	return err
}

// withParts has do try through outages until ctx ends; the store is made if it
// is missing and wanted.
func (l *Log) withParts(ctx context.Context, op string, sum template.Sum, wanted bool, do func(context.Context, jetstream.ObjectStore) error) error {
	for try := 0; ; {
		err := l.tryParts(ctx, wanted, do)
		var api *jetstream.APIError
		switch {
		case err == nil:
			return nil
		case errors.Is(err, jetstream.ErrObjectNotFound), errors.Is(err, jetstream.ErrBucketNotFound):
			return kind.New(kind.NotFound, op, string(sum), "the template's files are not stored any more: build or import it again")
		case errors.As(err, &api) && (api.ErrorCode == errNoResources || api.ErrorCode == errMaxBytes || api.ErrorCode == errStorageLimit || noRoom(err)):
			return &kind.Error{Op: op, ID: string(sum), Kind: kind.Exhausted, Err: err,
				Msg: "the servers' store is full: remove templates, or give NATS more room"}
		}
		if !l.pause(ctx, &try) {
			return kind.Wrap(kind.Unavailable, op, string(sum), err)
		}
	}
}

func (l *Log) tryParts(ctx context.Context, wanted bool, do func(context.Context, jetstream.ObjectStore) error) error {
	ctx, cancel := l.attemptFor(ctx, partAttempt)
	defer cancel()
	store, err := l.js.ObjectStore(ctx, bucketTemplates)
	if wanted && errors.Is(err, jetstream.ErrBucketNotFound) {
		store, err = l.js.CreateObjectStore(ctx, jetstream.ObjectStoreConfig{
			Bucket: bucketTemplates, Description: "parts of templates, by their SHA-256", Replicas: l.replicas,
		})
		if errors.Is(err, jetstream.ErrBucketExists) {
			store, err = l.js.ObjectStore(ctx, bucketTemplates)
		}
	}
	if err != nil {
		return err
	}
	return do(ctx, store)
}
