package events

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/events/internal/streams"
)

// DefaultMaxStore is the default of Config.MaxStore.
const DefaultMaxStore = 64 << 30

// blobs is the part of a Log that keeps files: parts of templates, copies of hosts' files,
// and files that builds copy. They are in object stores, each of which has a limit.
type blobs struct {
	*conn
	replicas    int
	maxContexts int64
	maxStore    int64
}

// limitedStore returns an object store that rejects uploads beyond its MaxBytes. A new
// store first reserves twice as much, and less if the servers do not have it: streams
// without a limit must fit beside it.
func (l *blobs) limitedStore(ctx context.Context, cfg jetstream.ObjectStoreConfig) (jetstream.ObjectStore, error) {
	cfg.Replicas = l.replicas
	store, err := l.js.ObjectStore(ctx, cfg.Bucket)
	if !errors.Is(err, jetstream.ErrBucketNotFound) {
		return store, err
	}
	store, err = streams.ShrinkToFit(2*cfg.MaxBytes, func(most int64) (jetstream.ObjectStore, error) {
		cfg.MaxBytes = most
		store, err := l.js.CreateObjectStore(ctx, cfg)
		if err == nil {
			cfg.MaxBytes /= 2
			store, err = l.js.UpdateObjectStore(ctx, cfg)
		}
		return store, err
	})
	if errors.Is(err, jetstream.ErrBucketExists) { // another service created it
		return l.js.ObjectStore(ctx, cfg.Bucket)
	}
	return store, err
}

// statComplete returns an object store and the info of an object that is stored completely. A put
// that fails because the store is full may leave the object's name without all of its
// bytes; that is reported as jetstream.ErrObjectNotFound, too.
func (l *blobs) statComplete(ctx context.Context, bucket, name string) (jetstream.ObjectStore, *jetstream.ObjectInfo, error) {
	store, err := l.js.ObjectStore(ctx, bucket)
	if err != nil {
		return nil, nil, err
	}
	obj, err := store.GetInfo(ctx, name)
	if err != nil {
		return store, nil, err
	}
	s, err := l.js.Stream(ctx, "OBJ_"+bucket)
	if err != nil {
		return store, nil, err
	}
	parts := "$O." + bucket + ".C." + obj.NUID
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(parts))
	if err == nil && info.State.Subjects[parts] != uint64(obj.Chunks) {
		err = jetstream.ErrObjectNotFound
	}
	return store, obj, err
}
