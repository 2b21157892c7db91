package workspace

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/events/blob"
	"github.com/millrace/millrace/events/internal/fold"
	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/kind"
)

// Store has the files of workspaces in the log, and a view of them. Its methods may be called
// concurrently, after Start.
type Store struct {
	conn     *store.Conn
	bytes    blob.Workspaces
	progress *fold.Progress
	index    index     // guarded by the lock of the view
	retired  []retired // guarded by the lock of the view
}

// NewStore returns a store whose view is empty until Start.
func NewStore(conn *store.Conn, bytes blob.Workspaces) *Store {
	return &Store{conn: conn, bytes: bytes, progress: fold.NewProgress(conn), index: newIndex()}
}

// Start keeps the view up to date until ctx ends. It is called once.
func (s *Store) Start(ctx context.Context) error {
	return s.progress.Start(ctx, []fold.Source{{Stream: streams.Workspaces, Apply: s.apply, Notify: true}})
}

// apply stores what a message contains. The view is locked.
func (s *Store) apply(m store.Message) error {
	e, err := decode(m)
	if err == nil {
		s.index.set(&e)
	}
	return err
}

// Sync waits until everything stored before the call is in the view. It retries through outages
// until ctx ends.
func (s *Store) Sync(ctx context.Context) error {
	return store.Unavailable("sync", streams.Workspaces, s.progress.Sync(ctx))
}

// Workspaces returns the workspaces of a tenant that have files, ordered by their names.
func (s *Store) Workspaces(tenant string) []Usage {
	s.progress.Lock()
	defer s.progress.Unlock()
	var out []Usage
	for scope := range s.index.scopes {
		if scope.Tenant == tenant {
			u, _ := s.index.usage(scope)
			out = append(out, u)
		}
	}
	slices.SortFunc(out, func(a, b Usage) int {
		return cmp.Or(cmp.Compare(a.Scope.App, b.Scope.App), cmp.Compare(a.Scope.Set, b.Scope.Set))
	})
	return out
}

// Usage returns the size of a workspace. It returns false if it has no files.
func (s *Store) Usage(of Scope) (Usage, bool) {
	s.progress.Lock()
	defer s.progress.Unlock()
	return s.index.usage(of)
}

// List returns at most limit files whose paths begin with prefix and follow after, in the order of
// their paths, and whether there are more.
func (s *Store) List(of Scope, prefix string, after Path, limit int) (files []File, more bool) {
	s.progress.Lock()
	defer s.progress.Unlock()
	return s.index.list(of, prefix, after, limit)
}

// Stat returns a file, or NotFound.
func (s *Store) Stat(of Scope, p Path) (File, error) {
	s.progress.Lock()
	defer s.progress.Unlock()
	f, ok := s.index.get(of, p)
	if !ok {
		return f, NoFile(p)
	}
	return f, nil
}

// Open returns a reader of a file's bytes. ctx bounds all reads. A read that ends in io.EOF was complete.
func (s *Store) Open(ctx context.Context, f *File) io.Reader {
	return s.bytes.Open(ctx, f.object, f.Size)
}

// Put stores a file when r has ended, and replaces an older one. If r fails, it returns r's error
// unwrapped, and the older file stays. It returns Exhausted if there is no space.
func (s *Store) Put(ctx context.Context, of Scope, p Path, r io.Reader) (File, error) {
	u, _ := s.Usage(of)
	if _, err := s.Stat(of, p); err != nil && u.Files >= MaxFiles {
		return File{}, kind.Newf(kind.Exhausted, "store file", string(p), "a workspace has at most %d files", MaxFiles)
	}
	f := File{Path: p, object: newObject()}
	var err error
	if f.Size, err = s.bytes.Put(ctx, f.object, &limited{r, MaxFile}); err == nil {
		f.Modified = time.Now()
		err = s.replace(ctx, of, f)
	}
	if err != nil && !kind.Is(err, kind.Unavailable) { // otherwise the entry may be stored
		s.retire(f.object)
	}
	return f, err
}

// limited fails when more than left bytes are read.
type limited struct {
	r    io.Reader
	left int64
}

// Read reads, and fails beyond the limit.
func (l *limited) Read(p []byte) (int, error) {
	n, err := l.r.Read(p)
	if l.left -= int64(n); l.left < 0 {
		return 0, kind.Newf(kind.Invalid, "store file", "", "the file is larger than %d bytes", int64(MaxFile))
	}
	return n, err
}

// Remove removes a file. It returns NotFound if it does not exist.
func (s *Store) Remove(ctx context.Context, of Scope, p Path) error {
	return s.replace(ctx, of, File{Path: p, Modified: time.Now()})
}

// removals is how many files of a workspace are removed concurrently.
const removals = 16

// RemoveAll removes the files of a workspace. It returns NotFound if there are none.
func (s *Store) RemoveAll(ctx context.Context, of Scope) error {
	all, _ := s.List(of, "", "", MaxFiles)
	if len(all) == 0 {
		return NoWorkspace(of)
	}
	g, removing := errgroup.WithContext(ctx)
	g.SetLimit(removals)
	for i := range all {
		g.Go(func() error {
			err := s.append(removing, of, File{Path: all[i].Path, Modified: time.Now()})
			if kind.Is(err, kind.NotFound) {
				return nil // another caller was faster
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return s.Sync(ctx)
}

// replace stores the entry of a file and waits until the view has it.
func (s *Store) replace(ctx context.Context, of Scope, f File) error {
	if err := s.append(ctx, of, f); err != nil {
		return err
	}
	return s.Sync(ctx)
}

// append stores the next entry of a path: the one that is stored last is valid. It returns NotFound
// for the removal of a file that does not exist.
func (s *Store) append(ctx context.Context, of Scope, f File) error {
	e := &entry{scope: of, file: f}
	data, err := encode(e)
	if err != nil {
		return kind.Wrap(kind.Internal, "store file", string(f.Path), err)
	}
	for {
		was, err := s.last(ctx, e.subject())
		if err == nil && f.object == "" && was.file.object == "" {
			err = NoFile(f.Path)
		}
		if err != nil {
			return err
		}
		_, err = s.conn.Put(ctx, streams.Workspaces, e.subject(), was.rev, data)
		if err == nil && was.file.object != "" {
			s.retire(was.file.object)
		}
		if !kind.Is(err, kind.Conflict) {
			return err
		}
	}
}

// last reads the last entry of a subject; the zero entry if there is none.
func (s *Store) last(ctx context.Context, subject string) (e entry, err error) {
	m, ok, err := s.conn.LastOf(ctx, streams.Workspaces, subject)
	if err == nil && ok {
		if e, err = decode(m); err != nil {
			return e, kind.Wrap(kind.Internal, "read file", subject, err)
		}
	}
	if errors.Is(err, context.Canceled) {
		return e, err
	}
	return e, store.Unavailable("read file", subject, err)
}
