package blob

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/kind"
)

// bucketWorkspaces is the object store of the files of workspaces. Its objects have no names: the log
// has an entry for each.
const bucketWorkspaces = "workspaces"

// chunkAttempt bounds one attempt to store a chunk.
const chunkAttempt = 5 * time.Second

// Workspaces is the store of the bytes of workspaces' files.
type Workspaces struct{ l *Store }

// WorkspaceBytes returns the store of the bytes of workspaces' files.
func (l *Store) WorkspaceBytes() Workspaces { return Workspaces{l} }

// Put stores the bytes of r as a new object and returns their number. It needs the memory of one
// chunk. If r fails, it returns r's error unwrapped. After an error the object may be stored in part,
// which Remove or Sweep removes. It returns Exhausted if the store is full.
func (w Workspaces) Put(ctx context.Context, object string, r io.Reader) (size int64, err error) {
	b, err := w.bucket(ctx)
	if err != nil {
		return 0, workspaceError("store file", object, err)
	}
	src, chunk := &source{r: r}, make([]byte, store.ObjectChunk)
	for last := uint64(0); ; {
		n, _ := io.ReadFull(src, chunk) // src keeps its error
		if src.err != nil {
			return size, src.err
		}
		if n > 0 {
			if last, err = w.append(ctx, b, object, last, chunk[:n]); err != nil {
				return size, err
			}
			size += int64(n)
		}
		if n < len(chunk) {
			return size, nil
		}
	}
}

// append stores a chunk once, after the one with the stream sequence last. It retries through outages.
// The object store's own Put and Get hold as many chunks as the network does, and give up after 5 s.
func (w Workspaces) append(ctx context.Context, b *store.Bucket, object string, last uint64, data []byte) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, partAttempt)
	defer cancel()
	for try := 0; ; {
		once, done := w.l.conn.Attempt(ctx, chunkAttempt)
		seq, err := b.AppendChunk(once, store.Unnamed(object), last, data)
		done()
		if err == nil || store.IsFull(err) {
			return seq, workspaceError("store file", object, err)
		}
		// It may be stored, with its acknowledgment lost.
		stream, subject := store.ChunksOf(bucketWorkspaces, store.Unnamed(object))
		m, ok, rErr := w.l.conn.RetryLeaderGet(ctx, stream, store.GetRequest{Seq: last + 1, Next: subject})
		if rErr == nil && ok {
			return m.Seq, nil
		}
		if rErr != nil || !w.l.conn.Backoff(ctx, &try) {
			return 0, workspaceError("store file", object, err)
		}
	}
}

// bucket returns the object store, and creates it. It retries through outages.
func (w Workspaces) bucket(ctx context.Context) (*store.Bucket, error) {
	ctx, cancel := context.WithTimeout(ctx, partAttempt)
	defer cancel()
	for try := 0; ; {
		once, done := w.l.conn.Attempt(ctx, chunkAttempt)
		b, err := w.l.conn.EnsureBucket(once, store.BucketConfig{
			Name: bucketWorkspaces, Description: "files of workspaces",
			Replicas: w.l.cfg.Replicas, MaxBytes: w.l.cfg.MaxWorkspaces,
		})
		done()
		if err == nil || store.IsFull(err) || !w.l.conn.Backoff(ctx, &try) {
			return b, err
		}
	}
}

// Open returns a reader of the object's bytes, which are size. It reads one chunk at a time. A read that
// ends in io.EOF was complete. ctx bounds all reads.
func (w Workspaces) Open(ctx context.Context, object string, size int64) io.Reader {
	return &chunkReader{ctx: ctx, w: w, object: object, left: size}
}

// chunkReader reads an object.
type chunkReader struct {
	ctx    context.Context //nolint:containedctx // of the reader's own lifetime
	w      Workspaces
	object string
	left   int64 // bytes that were not read from the store
	last   uint64
	data   []byte // read from the store, and not returned
}

// Read returns bytes of the current chunk.
func (r *chunkReader) Read(p []byte) (int, error) {
	if len(r.data) == 0 {
		if r.left == 0 {
			return 0, io.EOF
		}
		if err := r.next(); err != nil {
			return 0, workspaceError("read file", r.object, err)
		}
	}
	n := copy(p, r.data)
	r.data = r.data[n:]
	return n, nil
}

func (r *chunkReader) next() error {
	ctx, cancel := context.WithTimeout(r.ctx, partAttempt)
	defer cancel()
	stream, subject := store.ChunksOf(bucketWorkspaces, store.Unnamed(r.object))
	m, ok, err := r.w.l.conn.ReadOne(ctx, stream, store.GetRequest{Seq: r.last + 1, Next: subject})
	switch {
	case err != nil:
		return err
	case !ok:
		return store.ErrNoObject
	case len(m.Data) == 0 || int64(len(m.Data)) > r.left:
		return store.ErrDamaged
	}
	r.data, r.last = m.Data, m.Seq
	r.left -= int64(len(r.data))
	return nil
}

// Remove removes an object, if it exists.
func (w Workspaces) Remove(ctx context.Context, object string) error {
	ctx, cancel := w.l.conn.Attempt(ctx, partAttempt)
	defer cancel()
	b, err := w.l.conn.Bucket(ctx, bucketWorkspaces)
	if err == nil {
		err = b.Purge(ctx, store.Unnamed(object))
	}
	if errors.Is(err, store.ErrNoBucket) {
		return nil
	}
	return workspaceError("remove file", object, err)
}

// Sweep removes the objects that nothing references and whose last bytes are older than age. It
// returns their number. used is called after the objects were listed.
func (w Workspaces) Sweep(ctx context.Context, age time.Duration, used func(yield func(object string)) error) (int, error) {
	n, err := w.sweep(ctx, age, used)
	return n, store.Unavailable("sweep", bucketWorkspaces, err)
}

func (w Workspaces) sweep(ctx context.Context, age time.Duration, used func(yield func(object string)) error) (int, error) {
	b, err := w.l.conn.Bucket(ctx, bucketWorkspaces)
	if errors.Is(err, store.ErrNoBucket) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	all, err := b.Chunks(ctx)
	if err == nil {
		err = used(func(object string) { b.Exclude(all, store.Unnamed(object)) })
	}
	if err != nil {
		return 0, err
	}
	return b.PurgeChunks(ctx, all, age)
}

func workspaceError(op, object string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, store.ErrNoObject), errors.Is(err, store.ErrNoBucket):
		return kind.New(kind.NotFound, op, object, "the file was replaced or removed")
	case errors.Is(err, store.ErrDamaged):
		return kind.New(kind.Internal, op, object, "the file is damaged in the servers' store")
	case store.IsBucketFull(err):
		return &kind.Error{Op: op, ID: object, Kind: kind.Exhausted, Err: err, Msg: "the store of workspaces is full: remove files"}
	case store.IsFull(err):
		return &kind.Error{Op: op, ID: object, Kind: kind.Exhausted, Err: err, Msg: "the servers' store is full"}
	}
	return store.Unavailable(op, object, err)
}
