package mounts

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/millrace/millrace/events/file"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/workspace"
	"github.com/millrace/millrace/internal/waiting"
	pb "github.com/millrace/millrace/schema/filesystem"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/workspaces"
)

// host is a sandbox with one file, f, of five bytes.
type host struct {
	modified time.Time
	broken   error  // of the answer to a read of the file
	more     string // bytes that the file has when it is read, besides the five
}

// stream is the answer to a request about files.
type stream struct {
	io.Reader
	io.Writer
}

func (stream) CloseWrite() error { return nil }
func (stream) Abort(error)       {}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func (h *host) OpenFiles(ctx context.Context, _ core.Principal, _ sandbox.ID, req *file.Request) (*core.Files, error) {
	if req.Op == file.OpRead && h.broken != nil {
		return core.OpenFilesOver(ctx, stream{failing{h.broken}, io.Discard}, req)
	}
	entry, err := proto.Marshal(&pb.EntryInfo{Path: Dir + "/f", Type: pb.FileType_FILE_TYPE_FILE, Size: 5, ModifiedTime: timestamppb.New(h.modified)})
	if err != nil {
		return nil, err
	}
	answer := file.AppendFrame(nil, entry)
	if req.Op == file.OpRead {
		answer = append(answer, "later"+h.more...)
	}
	return core.OpenFilesOver(ctx, stream{bytes.NewReader(answer), io.Discard}, req)
}

// files is a workspace with the file f.
type files struct {
	workspaces.Store
	mu       sync.Mutex
	content  string
	modified time.Time
	before   func(context.Context) error // called before a file is stored; nil: not
}

func (s *files) List(context.Context, workspace.Scope, string, workspace.Path, int) (workspaces.Page, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return workspaces.Page{Files: []workspace.File{{Path: "f", Size: int64(len(s.content)), Modified: s.modified}}}, nil
}

func (s *files) Put(ctx context.Context, _ workspace.Scope, _ workspace.Path, _ int64, r io.Reader) error {
	if s.before != nil {
		if err := s.before(ctx); err != nil {
			return err
		}
	}
	all, err := io.ReadAll(r)
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.content, s.modified = string(all), time.Unix(30, 0)
	}
	return err
}

func newMount(ms *Mounts) *mount {
	return ms.get(&sandbox.State{ID: "s", Tenant: "t", Request: sandbox.Requested{Metadata: map[string]string{Metadata: "app/set"}}})
}

// A file that could not be read is stored later, also if the workspace has one of the same size.
func TestUnreadFileIsStoredLater(t *testing.T) {
	for _, broken := range []error{kind.New(kind.Unavailable, "read", "", "the host restarts"), kind.New(kind.Denied, "read", "", "no")} {
		h, s := &host{modified: time.Unix(20, 0), broken: broken}, &files{content: "early", modified: time.Unix(10, 0)}
		ms := New(Config{Store: s, Files: h, Gateways: cluster{}, Slog: slog.New(slog.DiscardHandler)})
		m := newMount(ms)
		m.base["f"] = version{state{5, time.Unix(5, 0)}, state{5, time.Unix(10, 0)}}
		err := ms.sync(t.Context(), m, false)
		if b := m.unstored(); b.Count != 1 || (err != nil) != kind.Is(broken, kind.Unavailable) {
			t.Errorf("%v: %v, and %d files are not stored, want 1", broken, err, b.Count)
		}
		h.broken = nil
		if err := ms.sync(t.Context(), m, false); err != nil || s.content != "later" {
			t.Errorf("%v: %v, stored %q", broken, err, s.content)
		}
	}
}

// A gateway that stops while it stores the end of a sandbox stores it before it ends.
func TestStopWhileAnEndIsStored(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	h, s := &host{modified: time.Unix(20, 0)}, &files{content: "early", modified: time.Unix(10, 0)}
	r := &ending{asked: make(chan struct{}, 1), st: sandbox.State{ID: "s", Phase: sandbox.PhaseStopping, Mount: sandbox.WorkspaceMount{Gateway: "own", Since: time.Unix(1, 0)}}}
	ms := New(Config{View: r, Store: s, Files: h, Gateways: cluster{}, Slog: slog.New(slog.DiscardHandler)})
	newMount(ms)
	var once sync.Once
	s.before = func(ctx context.Context) (err error) {
		once.Do(func() {
			stop()
			<-ctx.Done()
			err = ctx.Err()
			select {
			case <-r.asked: // the sandbox is skipped, because its mount is locked
			case <-time.After(50 * time.Millisecond): // the end of the first attempt is awaited
			}
		})
		return err
	}
	ms.Run(ctx)
	if s.content != "later" || len(r.stored) != 1 {
		t.Errorf("stored %q, and the events %v", s.content, r.stored)
	}
}

// ending is a View of a sandbox that ends.
type ending struct {
	mu     sync.Mutex
	st     sandbox.State
	stored []sandbox.Body
	asked  chan struct{} // capacity 1
	first  bool          // the first call of Sandbox was made
}

func (r *ending) Changes() (<-chan struct{}, func())                  { return nil, func() {} }
func (r *ending) Sandboxes(func(*sandbox.State) bool) []sandbox.State { return nil }

func (r *ending) Sandbox(sandbox.ID) (sandbox.State, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.first {
		waiting.Notify(r.asked)
	}
	r.first = true
	return r.st, true
}

func (r *ending) ChangeSandbox(ctx context.Context, _ sandbox.ID, decide func(sandbox.State) ([]sandbox.Body, error)) (sandbox.State, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ctx.Err() != nil {
		return r.st, ctx.Err()
	}
	bodies, err := decide(r.st)
	r.stored = append(r.stored, bodies...)
	if len(bodies) > 0 {
		r.st.Mount.Gateway = ""
	}
	return r.st, err
}
