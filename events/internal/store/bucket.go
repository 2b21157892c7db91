package store

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/events/internal/streams"
)

// Errors of a Bucket, beside failures to reach the servers and a full store; see IsFull.
var (
	ErrNoBucket = jetstream.ErrBucketNotFound // the object store does not exist
	ErrNoObject = jetstream.ErrObjectNotFound // the object is not stored completely
	ErrDamaged  = jetstream.ErrDigestMismatch // the object does not match its digest
)

// Error codes of JetStream for a full store.
const (
	errNoResources  jetstream.ErrorCode = 10023
	errMaxBytes     jetstream.ErrorCode = 10077
	errStorageLimit jetstream.ErrorCode = 10028
)

// IsFull reports whether an operation failed because a store is full.
func IsFull(err error) bool {
	return isCode(err, errNoResources, errMaxBytes, errStorageLimit) || insufficientStorage(err)
}

// IsBucketFull reports whether an operation failed because of the limit of an object store.
func IsBucketFull(err error) bool { return isCode(err, errMaxBytes) }

// ObjectChunk is the number of bytes of an object per message.
const ObjectChunk = 512 << 10

// BucketConfig configures an object store.
type BucketConfig struct {
	Name        string
	Description string
	Replicas    int
	MaxAge      time.Duration // age at which an object is dropped; zero: never
	MaxBytes    int64         // uploads beyond it are rejected
}

// Bucket is an object store. Its methods make a single attempt.
type Bucket struct {
	js   jetstream.JetStream
	name string
	os   jetstream.ObjectStore
}

// Object is an object in a Bucket.
type Object struct {
	Name     string
	Modified time.Time
	Deleted  bool

	nuid string // identifies its bytes; empty: none
}

func objectOf(info *jetstream.ObjectInfo) Object {
	return Object{Name: info.Name, Modified: info.ModTime, Deleted: info.Deleted, nuid: info.NUID}
}

// Bucket returns an object store, or ErrNoBucket.
func (l *Conn) Bucket(ctx context.Context, name string) (*Bucket, error) {
	os, err := l.js.ObjectStore(ctx, name)
	if err != nil {
		return nil, err
	}
	return &Bucket{l.js, name, os}, nil
}

// EnsureBucket returns an object store that rejects uploads beyond its MaxBytes, and creates
// it if it is missing. A new store first reserves twice as much, and less if the servers do
// not have it: streams without a limit must fit beside it.
func (l *Conn) EnsureBucket(ctx context.Context, cfg BucketConfig) (*Bucket, error) {
	b, err := l.Bucket(ctx, cfg.Name)
	if !errors.Is(err, ErrNoBucket) {
		return b, err
	}
	sc := jetstream.ObjectStoreConfig{
		Bucket: cfg.Name, Description: cfg.Description, TTL: cfg.MaxAge, MaxBytes: cfg.MaxBytes, Replicas: cfg.Replicas,
	}
	os, err := shrinkToFit(2*sc.MaxBytes, func(most int64) (jetstream.ObjectStore, error) {
		sc.MaxBytes = most
		os, err := l.js.CreateObjectStore(ctx, sc)
		if err == nil {
			sc.MaxBytes /= 2
			os, err = l.js.UpdateObjectStore(ctx, sc)
		}
		return os, err
	})
	if errors.Is(err, jetstream.ErrBucketExists) { // another service created it
		return l.Bucket(ctx, cfg.Name)
	}
	return &Bucket{l.js, cfg.Name, os}, err
}

// Stat returns an object that is stored completely. A put that fails because the store is
// full may leave the object's name without all of its bytes; that is reported as
// ErrNoObject, too.
func (b *Bucket) Stat(ctx context.Context, name string) (Object, error) {
	obj, err := b.os.GetInfo(ctx, name)
	if err != nil {
		return Object{}, err
	}
	s, err := b.stream(ctx)
	if err != nil {
		return Object{}, err
	}
	chunks := b.chunks(obj.NUID)
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(chunks))
	if err == nil && info.State.Subjects[chunks] != uint64(obj.Chunks) {
		err = ErrNoObject
	}
	return objectOf(obj), err
}

// Find returns an object, including one that was deleted or is stored incompletely.
func (b *Bucket) Find(ctx context.Context, name string) (Object, error) {
	info, err := b.os.GetInfo(ctx, name, jetstream.GetObjectInfoShowDeleted())
	if err != nil {
		return Object{}, err
	}
	return objectOf(info), nil
}

// List returns all objects, including deleted ones.
func (b *Bucket) List(ctx context.Context) ([]Object, error) {
	all, err := b.os.List(ctx, jetstream.ListObjectsShowDeleted())
	if err != nil && !errors.Is(err, jetstream.ErrNoObjectsFound) {
		return nil, err
	}
	out := make([]Object, len(all))
	for i, info := range all {
		out[i] = objectOf(info)
	}
	return out, nil
}

// Put stores an object and replaces an older one. If r fails, the older one stays.
func (b *Bucket) Put(ctx context.Context, name string, r io.Reader) error {
	_, err := b.os.Put(ctx, metaOf(name), r)
	return err
}

// Touch sets the time at which an object was modified to now.
func (b *Bucket) Touch(ctx context.Context, name string) error {
	return b.os.UpdateMeta(ctx, name, metaOf(name))
}

func metaOf(name string) jetstream.ObjectMeta {
	return jetstream.ObjectMeta{Name: name, Opts: &jetstream.ObjectMetaOptions{ChunkSize: ObjectChunk}}
}

// Get reads an object. A read that ends in io.EOF was complete.
func (b *Bucket) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	return b.os.Get(ctx, name)
}

// GetBytes reads a whole object.
func (b *Bucket) GetBytes(ctx context.Context, name string) ([]byte, error) {
	return b.os.GetBytes(ctx, name)
}

// Purge removes an object for good. An object store's own Delete stores a marker, which
// fails in a full store. A crash in between leaves bytes without a name; see Chunks.
func (b *Bucket) Purge(ctx context.Context, o Object) error {
	s, err := b.stream(ctx)
	if err != nil {
		return err
	}
	// The layout is that of NATS, ADR-20.
	name := "$O." + b.name + ".M." + base64.URLEncoding.EncodeToString([]byte(o.Name))
	if o.Name != "" {
		err = s.Purge(ctx, jetstream.WithPurgeSubject(name))
	}
	if err != nil || o.nuid == "" {
		return err
	}
	return s.Purge(ctx, jetstream.WithPurgeSubject(b.chunks(o.nuid)))
}

// Unnamed returns an object without a name, whose chunks are stored one by one.
func Unnamed(id string) Object { return Object{nuid: id} }

// ChunksOf returns the stream and the subject of the bytes of an object in a bucket.
func ChunksOf(bucket string, o Object) (stream, subject string) {
	return streams.ObjectStore + bucket, (&Bucket{name: bucket}).chunks(o.nuid)
}

// AppendChunk stores the next bytes of an object, after the chunk with a stream sequence.
func (b *Bucket) AppendChunk(ctx context.Context, o Object, after uint64, data []byte) (uint64, error) {
	ack, err := b.js.Publish(ctx, b.chunks(o.nuid), data, jetstream.WithExpectLastSequencePerSubject(after))
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}

// Chunks are the bytes of objects, perhaps without a name.
type Chunks map[string]uint64 // by their subjects

// Chunks returns the bytes of all objects.
func (b *Bucket) Chunks(ctx context.Context) (Chunks, error) {
	s, err := b.stream(ctx)
	if err != nil {
		return nil, err
	}
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(b.chunks(">")))
	if err != nil {
		return nil, err
	}
	return info.State.Subjects, nil
}

// Exclude removes the bytes of an object from all.
func (b *Bucket) Exclude(all Chunks, o Object) { delete(all, b.chunks(o.nuid)) }

// PurgeChunks removes bytes of all that are older than age, and returns the number of
// objects to which they belonged.
func (b *Bucket) PurgeChunks(ctx context.Context, all Chunks, age time.Duration) (n int, err error) {
	for subject := range all {
		s, err := b.stream(ctx)
		if err != nil {
			return n, err
		}
		last, err := s.GetLastMsgForSubject(ctx, subject)
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound):
			continue
		case err != nil:
			return n, err
		case time.Since(last.Time) < age:
			continue
		}
		n++
		if err := s.Purge(ctx, jetstream.WithPurgeSubject(subject)); err != nil {
			return n, err
		}
	}
	return n, nil
}

func (b *Bucket) stream(ctx context.Context) (jetstream.Stream, error) {
	return b.js.Stream(ctx, streams.ObjectStore+b.name)
}

// chunks returns the subject of an object's bytes (NATS, ADR-20).
func (b *Bucket) chunks(nuid string) string { return "$O." + b.name + ".C." + nuid }
