package events

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go/jetstream"
)

// DefaultMaxStore is how many bytes of templates and snapshots the servers
// keep.
const DefaultMaxStore = 64 << 30

// boundedStore gives an object store that refuses what is over its MaxBytes. One
// that is made asks for twice as much, and is made smaller where the servers have
// not so much room: what has no bound must fit beside it. One that an earlier
// version left without a bound gets one.
func (l *Log) boundedStore(ctx context.Context, cfg jetstream.ObjectStoreConfig) (jetstream.ObjectStore, error) {
	cfg.Replicas = l.replicas
	store, err := l.js.ObjectStore(ctx, cfg.Bucket)
	most := int64(0)
	if err == nil {
		most, err = l.bound(ctx, cfg.Bucket)
	}
	switch {
	case err == nil && most > 0:
		return store, nil
	case err == nil:
		return fitting(cfg.MaxBytes, func(most int64) (jetstream.ObjectStore, error) {
			cfg.MaxBytes = most
			return l.js.UpdateObjectStore(ctx, cfg)
		})
	case !errors.Is(err, jetstream.ErrBucketNotFound):
		return nil, err
	}
	store, err = fitting(2*cfg.MaxBytes, func(most int64) (jetstream.ObjectStore, error) {
		cfg.MaxBytes = most
		store, err := l.js.CreateObjectStore(ctx, cfg)
		if err == nil {
			cfg.MaxBytes /= 2
			store, err = l.js.UpdateObjectStore(ctx, cfg)
		}
		return store, err
	})
	if errors.Is(err, jetstream.ErrBucketExists) { // somebody else made it
		return l.js.ObjectStore(ctx, cfg.Bucket)
	}
	return store, err
}

// bound is the most bytes that an object store keeps; not positive: any number.
func (l *Log) bound(ctx context.Context, bucket string) (int64, error) {
	s, err := l.js.Stream(ctx, "OBJ_"+bucket)
	if err != nil {
		return 0, err
	}
	return s.CachedInfo().Config.MaxBytes, nil
}

// whole gives an object store, and what it says of an object all of which is there. A
// put that fails for want of room may leave the object's name, and not all of its
// bytes; that is jetstream.ErrObjectNotFound, too.
func (l *Log) whole(ctx context.Context, bucket, name string) (jetstream.ObjectStore, *jetstream.ObjectInfo, error) {
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
