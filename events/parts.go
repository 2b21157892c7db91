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

// bucketTemplates is the object store of parts: of templates, and of the copies of
// hosts' files. A part is an object of its own, by its sum: what several share is
// stored once, and who was cut off goes on with the parts that lack. It has a bound,
// and what is over it is refused, so that nothing else lacks room.
const bucketTemplates = "templates"

// keptPrefix begins the names of the parts of copies. They are nobody's to ask for
// by a sum, as those of templates are.
const keptPrefix = "kept."

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
	return l.putPart(ctx, string(sum), data, false)
}

// putPart stores a part. One that is there is only made to look new, so that nobody
// takes it for forgotten (SweepParts), unless it is to be replaced.
func (l *Log) putPart(ctx context.Context, name string, data []byte, replace bool) error {
	return l.withParts(ctx, "store files", name, true, func(ctx context.Context, store jetstream.ObjectStore) error {
		err := l.countOn(ctx, store, name, freshPart)
		if err == nil && !replace || err != nil && !errors.Is(err, jetstream.ErrObjectNotFound) {
			return err
		}
		if _, err = store.Put(ctx, metaOf(name), bytes.NewReader(data)); err != nil && isFull(err) {
			if half, hErr := store.GetInfo(ctx, name); hErr == nil {
				l.purgePart(ctx, half) //nolint:errcheck // it is not taken for whole, and swept
			}
		}
		return err
	})
}

func metaOf(name string) jetstream.ObjectMeta {
	return jetstream.ObjectMeta{Name: name, Opts: &jetstream.ObjectMetaOptions{ChunkSize: partChunk}}
}

// countOn finds a part, and makes it look new if it is of that age: who found it may
// be about to name it.
func (l *Log) countOn(ctx context.Context, store jetstream.ObjectStore, name string, age time.Duration) error {
	_, info, err := l.whole(ctx, bucketTemplates, name)
	if err == nil && time.Since(info.ModTime) >= age {
		if err = store.UpdateMeta(ctx, name, metaOf(name)); isFull(err) {
			return nil // it is there, as old as it looks
		}
	}
	return err
}

// HasPart reports whether a part is stored; one that is stays for a while, as one
// that is put does.
func (l *Log) HasPart(ctx context.Context, sum template.Sum) (bool, error) {
	return l.hasPart(ctx, string(sum), freshPart)
}

func (l *Log) hasPart(ctx context.Context, name string, age time.Duration) (bool, error) {
	err := l.withParts(ctx, "find files", name, false, func(ctx context.Context, store jetstream.ObjectStore) error {
		return l.countOn(ctx, store, name, age)
	})
	if kind.Is(err, kind.NotFound) {
		return false, nil
	}
	return err == nil, err
}

// Part reads a part as PutPart was given it. NotFound if it is not stored. Invalid
// if it is damaged, as far as the servers know: the caller checks its sum.
func (l *Log) Part(ctx context.Context, sum template.Sum) ([]byte, error) {
	return l.getPart(ctx, string(sum))
}

func (l *Log) getPart(ctx context.Context, name string) ([]byte, error) {
	var data []byte
	err := l.withParts(ctx, "read files", name, false, func(ctx context.Context, store jetstream.ObjectStore) (err error) {
		if _, _, err = l.whole(ctx, bucketTemplates, name); err == nil {
			data, err = store.GetBytes(ctx, name)
		}
		return err
	})
	return data, err
}

// RemovePart removes a part; one that is not there is removed.
func (l *Log) RemovePart(ctx context.Context, sum template.Sum) error {
	return l.removePart(ctx, string(sum))
}

func (l *Log) removePart(ctx context.Context, name string) error {
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

// withParts has do try through outages until ctx ends; the store is made if it
// is missing and wanted.
func (l *Log) withParts(ctx context.Context, op, name string, wanted bool, do func(context.Context, jetstream.ObjectStore) error) error {
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
				Msg: "the servers' store is full: remove templates or snapshots, or give the stream OBJ_templates more room"}
		}
		if !l.pause(ctx, &try) {
			return unavailable(op, name, err)
		}
	}
}

// isFull reports whether a store has no room for what was to be stored.
func isFull(err error) bool {
	return isCode(err, errNoResources, errMaxBytes, errStorageLimit) || noRoom(err)
}

func (l *Log) tryParts(ctx context.Context, wanted bool, do func(context.Context, jetstream.ObjectStore) error) error {
	ctx, cancel := l.attemptFor(ctx, partAttempt)
	defer cancel()
	store, err := l.js.ObjectStore(ctx, bucketTemplates)
	if wanted && (errors.Is(err, jetstream.ErrBucketNotFound) || err == nil && !l.bounded.Load()) {
		store, err = l.boundedStore(ctx, jetstream.ObjectStoreConfig{
			Bucket: bucketTemplates, Description: "parts of templates and snapshots, by their SHA-256", MaxBytes: l.maxStore,
		})
		l.bounded.Store(err == nil)
	}
	if err != nil {
		return err
	}
	return do(ctx, store)
}
