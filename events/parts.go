package events

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/template"
)

// bucketTemplates is the object store of the parts of templates and of copies of hosts'
// files. A part is an object named by its sum, so that a shared part is stored once and an
// interrupted upload resumes with the missing parts. The store has a size limit and rejects
// parts beyond it, so that other streams keep their disk space.
const bucketTemplates = "templates"

// copyPrefix begins the names of the parts of copies. Clients cannot request them by sum,
// as they can parts of templates.
const copyPrefix = "kept."

const (
	partAttempt = time.Minute // one attempt to store or read a part
	partChunk   = 512 << 10   // bytes per message
)

// Error codes of JetStream for a full store.
const (
	errNoResources  jetstream.ErrorCode = 10023
	errMaxBytes     jetstream.ErrorCode = 10077
	errStorageLimit jetstream.ErrorCode = 10028
)

// PutPart stores a part of a template, compressed by the caller, under its sum. It leaves
// an existing part alone. It returns Exhausted if the store is full.
func (l *blobs) PutPart(ctx context.Context, sum template.Sum, data []byte) error {
	return l.putPart(ctx, string(sum), data, false)
}

// putPart stores a part. It only refreshes an existing one, so that SweepParts does not
// remove it, unless replace is set.
func (l *blobs) putPart(ctx context.Context, name string, data []byte, replace bool) error {
	return l.withParts(ctx, "store files", name, true, func(ctx context.Context, store jetstream.ObjectStore) error {
		err := l.refreshPart(ctx, store, name, freshPart)
		if err == nil && !replace || err != nil && !errors.Is(err, jetstream.ErrObjectNotFound) {
			return err
		}
		if _, err = store.Put(ctx, metaOf(name), bytes.NewReader(data)); err != nil && isFull(err) {
			if half, hErr := store.GetInfo(ctx, name); hErr == nil {
				l.purgePart(ctx, half) //nolint:errcheck // an incomplete part is treated as missing, and swept later
			}
		}
		return err
	})
}

func metaOf(name string) jetstream.ObjectMeta {
	return jetstream.ObjectMeta{Name: name, Opts: &jetstream.ObjectMetaOptions{ChunkSize: partChunk}}
}

// refreshPart finds a part and refreshes it if it is older than age: the caller may be about to
// reference it.
func (l *blobs) refreshPart(ctx context.Context, store jetstream.ObjectStore, name string, age time.Duration) error {
	_, info, err := l.statComplete(ctx, bucketTemplates, name)
	if err == nil && time.Since(info.ModTime) >= age {
		if err = store.UpdateMeta(ctx, name, metaOf(name)); isFull(err) {
			return nil // it exists, with its old age
		}
	}
	return err
}

// HasPart reports whether a part is stored. Like PutPart, it keeps an existing part from
// being swept for a while.
func (l *blobs) HasPart(ctx context.Context, sum template.Sum) (bool, error) {
	return l.hasPart(ctx, string(sum), freshPart)
}

func (l *blobs) hasPart(ctx context.Context, name string, age time.Duration) (bool, error) {
	err := l.withParts(ctx, "find files", name, false, func(ctx context.Context, store jetstream.ObjectStore) error {
		return l.refreshPart(ctx, store, name, age)
	})
	if kind.Is(err, kind.NotFound) {
		return false, nil
	}
	return err == nil, err
}

// Part reads a part as it was passed to PutPart. It returns NotFound if the part is not
// stored, Invalid if the servers detect damage. The caller must check the sum.
func (l *blobs) Part(ctx context.Context, sum template.Sum) ([]byte, error) {
	return l.getPart(ctx, string(sum))
}

func (l *blobs) getPart(ctx context.Context, name string) ([]byte, error) {
	var data []byte
	err := l.withParts(ctx, "read files", name, false, func(ctx context.Context, store jetstream.ObjectStore) (err error) {
		if _, _, err = l.statComplete(ctx, bucketTemplates, name); err == nil {
			data, err = store.GetBytes(ctx, name)
		}
		return err
	})
	return data, err
}

// RemovePart removes a part if it exists.
func (l *blobs) RemovePart(ctx context.Context, sum template.Sum) error {
	return l.removePart(ctx, string(sum))
}

func (l *blobs) removePart(ctx context.Context, name string) error {
	err := l.withParts(ctx, "remove files", name, false, func(ctx context.Context, store jetstream.ObjectStore) error {
		info, err := store.GetInfo(ctx, name, jetstream.GetObjectInfoShowDeleted())
		if err != nil {
			return err
		}
		return l.purgePart(ctx, info)
	})
	if kind.Is(err, kind.NotFound) {
		return nil
	}
	return err
}

// withParts retries do through outages until ctx ends. If wanted, it creates a missing
// store.
func (l *blobs) withParts(ctx context.Context, op, name string, wanted bool, do func(context.Context, jetstream.ObjectStore) error) error {
	for try := 0; ; {
		err := l.tryParts(ctx, wanted, do)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, jetstream.ErrObjectNotFound), errors.Is(err, jetstream.ErrBucketNotFound):
			return kind.New(kind.NotFound, op, name, "the files are not stored any more: make the template or snapshot again")
		case errors.Is(err, jetstream.ErrDigestMismatch):
			return kind.New(kind.Invalid, op, name, "the files are damaged in the servers' store")
		case isFull(err):
			return &kind.Error{Op: op, ID: name, Kind: kind.Exhausted, Err: err,
				Msg: "the servers' store is full: remove templates or snapshots, or raise the size limit of the stream OBJ_templates"}
		}
		if !l.backoff(ctx, &try) {
			return unavailable(op, name, err)
		}
	}
}

// isFull reports whether an operation failed because a store is full.
func isFull(err error) bool {
	return streams.IsCode(err, errNoResources, errMaxBytes, errStorageLimit) || streams.InsufficientStorage(err)
}

func (l *blobs) tryParts(ctx context.Context, wanted bool, do func(context.Context, jetstream.ObjectStore) error) error {
	ctx, cancel := l.attemptFor(ctx, partAttempt)
	defer cancel()
	store, err := l.js.ObjectStore(ctx, bucketTemplates)
	if wanted && errors.Is(err, jetstream.ErrBucketNotFound) {
		store, err = l.limitedStore(ctx, jetstream.ObjectStoreConfig{
			Bucket: bucketTemplates, Description: "parts of templates and snapshots, by their SHA-256", MaxBytes: l.maxStore,
		})
	}
	if err != nil {
		return err
	}
	return do(ctx, store)
}
