package backend_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/codex/backend"
	"github.com/millrace/millrace/services/gateway/internal/codex/protocol"
	"github.com/millrace/millrace/services/gateway/internal/codex/session"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/record/recordtest"
)

func command(argv ...string) session.Command {
	return session.Command{Argv: argv, Cwd: "/work", Env: map[string]string{"A": "1"}}
}

// A process that one gateway started is found by another, by the client's name.
func TestProcessesAreFoundByName(t *testing.T) {
	g, ctx := newGateway(t), t.Context()
	here := g.services(backend.New(g), false)
	name := "a:b *.>"
	cmd := command("cat", "x")
	cmd.Stdin = true
	proc, src, err := here.Processes.Start(ctx, name, cmd)
	if err != nil {
		t.Fatal(err)
	}
	src.Close()
	if _, _, err := here.Processes.Start(ctx, name, cmd); !kind.Is(err, kind.Conflict) {
		t.Errorf("again: %v", err)
	}
	there := g.services(backend.New(g), true)
	got, err := there.Processes.Find(ctx, name)
	if err != nil || got != proc || got.Name != name || !got.Stdin || got.TTY {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, _, err := there.Processes.Start(ctx, name, cmd); !kind.Is(err, kind.Conflict) {
		t.Errorf("again there: %v", err)
	}
	for _, other := range []string{"a", "a:b", "", "a:b *.>x"} {
		if _, err := there.Processes.Find(ctx, other); !kind.Is(err, kind.NotFound) {
			t.Errorf("%q: %v", other, err)
		}
	}
	if strings.ContainsAny(string(got.ID), " *>:") {
		t.Errorf("the name is in the id %s", got.ID)
	}
	if all, err := there.Processes.Running(ctx); err != nil || !slices.Equal(all, []session.Process{proc}) {
		t.Errorf("running: %+v, %v", all, err)
	}
	g.finish(proc.ID, 0)
	if all, err := there.Processes.Running(ctx); err != nil || len(all) != 0 {
		t.Errorf("running after the end: %+v, %v", all, err)
	}
	if _, err := there.Processes.Find(ctx, name); err != nil {
		t.Errorf("after the end: %v", err)
	}
	// recordtest's processes end in January: their names are free again.
	if _, _, err := there.Processes.Start(ctx, name, cmd); err != nil {
		t.Errorf("after the retention: %v", err)
	}
	if st, err := os.Stat(filepath.Join(g.root, "work")); err != nil || !st.IsDir() {
		t.Errorf("the working directory: %v", err)
	}
}

// A start that failed frees its name.
func TestFailedStart(t *testing.T) {
	g, ctx := newGateway(t), t.Context()
	s := g.services(backend.New(g), false)
	for range 2 {
		_, src, err := s.Processes.Start(ctx, "p", command("missing"))
		if err != nil {
			t.Fatal(err)
		}
		src.Close()
	}
	if _, err := s.Processes.Find(ctx, "p"); !kind.Is(err, kind.NotFound) {
		t.Errorf("got %v", err)
	}
}

// A process is started exactly as the client asks..
func TestExactStarts(t *testing.T) {
	g, ctx := newGateway(t), t.Context()
	s := g.services(backend.New(g), false)
	cmd, zero := command("a", "b"), "zero"
	cmd.Arg0, cmd.Env = &zero, map[string]string{"A": "1"}
	cmd.Confinement = &process.Confinement{Read: []string{"/"}, Optional: []string{"/x"}, Network: true}
	proc, src, err := s.Processes.Start(ctx, "p", cmd)
	if err != nil {
		t.Fatal(err)
	}
	src.Close()
	found, err := g.Process(ctx, core.Principal{Tenant: recordtest.Tenant}, proc.ID)
	if err != nil {
		t.Fatal(err)
	}
	want := process.Confinement{Read: []string{"/"}, Optional: []string{"/x"}, Network: true}
	if spec := found.Spec; !spec.Exact || spec.Arg0 == nil || *spec.Arg0 != zero || spec.Confine == nil || !reflect.DeepEqual(*spec.Confine, want) {
		t.Errorf("spec: %+v", spec)
	}
	if _, _, err := s.Processes.Start(ctx, "q", command("a", "\x00")); !kind.Is(err, kind.Invalid) {
		t.Errorf("NUL: %v", err)
	}
}

func TestReadReportsWhatRetentionRemoved(t *testing.T) {
	g, ctx := newGateway(t), t.Context()
	s := g.services(backend.New(g), false)
	proc, src, err := s.Processes.Start(ctx, "p", command("a"))
	if err != nil {
		t.Fatal(err)
	}
	src.Close()
	tail, err := s.Records.Tail(ctx, proc.ID)
	if err != nil || tail.Last != 2 || tail.Finished != nil {
		t.Errorf("tail: %+v, %v", tail, err)
	}
	g.finish(proc.ID, 3)
	if src, err = s.Records.Read(ctx, proc.ID, 2); err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	batch, err := src.Next(ctx, time.Second)
	if err != nil || batch[0].Seq != 3 || batch[0].Type() != "exited" {
		t.Errorf("got %+v, %v", batch, err)
	}
}

func TestInputAndSignals(t *testing.T) {
	g, ctx := newGateway(t), t.Context()
	b := backend.New(g)
	s := g.services(b, false)
	proc, _, err := s.Processes.Start(ctx, "p", command("a"))
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		s.Controls.Write(ctx, proc.ID, "", []byte("x")), s.Controls.Write(ctx, proc.ID, "k", []byte("y")), s.Controls.Signal(ctx, proc.ID, 2),
		b.End(ctx, core.Principal{Tenant: recordtest.Tenant}, "i1", "other"), b.End(ctx, core.Principal{Tenant: recordtest.Tenant}, "i1", "s1"),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	if got := fmt.Sprint(g.Calls); got != `[stdin "x" eof=false stdin "y" eof=false key=k signal 2 signal 9]` {
		t.Errorf("got %s", got)
	}
}

func TestDescribe(t *testing.T) {
	g, ctx := newGateway(t), t.Context()
	b := backend.New(g)
	for range 2 {
		info, vars, err := g.services(b, false).Environment.Describe(ctx)
		if err != nil || info.Shell != (protocol.Shell{Name: "bash", Path: "/bin/bash"}) || info.Cwd != "/home/user" || info.UserHomeDir != "/home/user" || fmt.Sprint(vars) != "map[A:b=c\nd HOME:/home/user PATH:/bin]" {
			t.Errorf("got %+v, %v, %v", info, vars, err)
		}
	}
}

// The record never has the variables of a sandbox. A gateway that misses the output of the script, which is
// therefore sent once only, runs it again after a pause, but not forever.
func TestDescribeIsNotRecorded(t *testing.T) {
	for _, tt := range []struct {
		missed, runs int
		pauses       time.Duration
		ok           bool
	}{
		{0, 1, 0, true}, {1, 2, 50 * time.Millisecond, true}, {100, 3, 150 * time.Millisecond, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			g, runs := newGateway(t), 0
			whole := g.OnStart
			g.OnStart = func(id process.ID, spec process.Spec) {
				if runs++; spec.Record.KeepsOutput() {
					t.Errorf("run %d is recorded", runs)
				}
				if runs > tt.missed {
					whole(id, spec)
					return
				}
				g.Append(id, process.Started{PID: 1}, process.Omitted{Stream: process.Stdout, Bytes: 7})
				g.finish(id, 0)
			}
			began := time.Now()
			info, _, err := g.services(backend.New(g), false).Environment.Describe(t.Context())
			if took := time.Since(began); runs != tt.runs || took != tt.pauses {
				t.Errorf("%d runs in %v, want %d in %v", runs, took, tt.runs, tt.pauses)
			}
			if tt.ok && (err != nil || info.Cwd != "/home/user") || !tt.ok && !kind.Is(err, kind.Unavailable) {
				t.Errorf("%d runs: %+v, %v", runs, info, err)
			}
		})
	}
}

func TestFiles(t *testing.T) {
	g, ctx := newGateway(t), t.Context()
	write := func(name, text string) {
		at := filepath.Join(g.root, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("d/sub/file", "hello")
	write("d/large", strings.Repeat("x", 1000))
	for to, from := range map[string]string{"d/link": "sub/file", "d/dir": "sub", "d/dangling": "nowhere"} {
		if err := os.Symlink(from, filepath.Join(g.root, to)); err != nil {
			t.Fatal(err)
		}
	}
	f, err := g.services(backend.New(g), false).Filesystem.Files(nil)
	if err != nil {
		t.Fatal(err)
	}
	stats := []struct {
		path string
		want session.FileInfo
		kind kind.Kind
	}{
		{"/d/sub/file", session.FileInfo{Regular: true, Size: 5}, 0},
		{"/d/sub", session.FileInfo{Dir: true}, 0},
		{"/d/link", session.FileInfo{Regular: true, Link: true, Size: 5}, 0},
		{"/d/dir", session.FileInfo{Dir: true, Link: true}, 0},
		{"/d/dangling", session.FileInfo{}, kind.NotFound},
		{"/d/zzz", session.FileInfo{}, kind.NotFound},
	}
	for _, tt := range stats {
		got, err := f.Stat(ctx, tt.path)
		if got.Modified = (time.Time{}); got.Dir {
			got.Size = 0
		}
		if got != tt.want || (err == nil) != (tt.kind == 0) || err != nil && !kind.Is(err, tt.kind) {
			t.Errorf("%s: %+v, %v", tt.path, got, err)
		}
	}
	if data, err := f.Read(ctx, "/d/link", 5); string(data) != "hello" || err != nil {
		t.Errorf("read: %q, %v", data, err)
	}
	if _, err := f.Read(ctx, "/d/large", 999); !kind.Is(err, kind.Exhausted) {
		t.Errorf("too large: %v", err)
	}
	list, more, err := f.List(ctx, "/d", 3)
	if fmt.Sprint(list) != "[{dir true false true} {large false true false} {link false true true}]" || !more || err != nil {
		t.Errorf("list: %v, %v, %v", list, more, err)
	}
	reals := map[string]string{"/": "/", "/d/sub/file": "/d/sub/file", "/d/dir/file": "/d/sub/file", "/d/link": "/d/sub/file", "/d/dir": "/d/sub"}
	for p, want := range reals {
		if got, err := f.(session.RealPather).RealPath(ctx, p); got != want || err != nil {
			t.Errorf("real path of %s: %s, %v", p, got, err)
		}
	}
	if _, err := f.(session.RealPather).RealPath(ctx, "/d/dangling"); !kind.Is(err, kind.NotFound) {
		t.Errorf("dangling: %v", err)
	}
	checks := []struct {
		name string
		err  error
		kind kind.Kind // 0: none
	}{
		{"write", f.Write(ctx, "/d/new", []byte("new")), 0},
		{"write without a directory", f.Write(ctx, "/zzz/new", nil), kind.NotFound},
		{"make", f.MakeDir(ctx, "/a/b/c", true), 0},
		{"make again", f.MakeDir(ctx, "/a/b/c", true), 0},
		{"make one again", f.MakeDir(ctx, "/a/b/c", false), kind.Conflict},
		{"make without parents", f.MakeDir(ctx, "/q/r", false), kind.NotFound},
		{"copy", f.(session.Copier).Copy(ctx, "/d/new", "/d/copy", false), 0},
		{"remove a full directory", f.Remove(ctx, "/a", false, true), kind.Conflict},
		{"remove an empty directory", f.Remove(ctx, "/a/b/c", false, true), 0},
		{"remove a tree", f.Remove(ctx, "/a", true, true), 0},
		{"remove nothing", f.Remove(ctx, "/a", true, true), 0},
		{"remove nothing without force", f.Remove(ctx, "/a", true, false), kind.NotFound},
	}
	for _, c := range checks {
		if (c.err == nil) != (c.kind == 0) || c.err != nil && !kind.Is(c.err, c.kind) {
			t.Errorf("%s: %v", c.name, c.err)
		}
	}
}

// All handles are on one stream, which ends with the last of them.
func TestHandles(t *testing.T) {
	g, ctx := newGateway(t), t.Context()
	if err := os.WriteFile(filepath.Join(g.root, "file"), []byte("hello world"), 0o644); err != nil {
		t.Fatal(err)
	}
	f, _ := g.services(backend.New(g), false).Filesystem.Files(nil)
	opener, creator := f.(session.HandleOpener), f.(session.HandleCreator)
	r, err := opener.OpenHandle(ctx, "/file")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := opener.OpenHandle(ctx, "/missing"); !kind.Is(err, kind.NotFound) {
		t.Errorf("a missing file: %v", err)
	}
	w, err := creator.CreateHandle(ctx, "/new")
	if err != nil {
		t.Fatal(err)
	}
	if err := w.WriteAt(ctx, []byte("abc"), 2); err != nil {
		t.Error(err)
	}
	buf := make([]byte, 6)
	for _, tt := range []struct {
		offset int64
		want   string
		err    error
	}{{0, "hello ", nil}, {6, "world", io.EOF}, {5, " world", nil}, {11, "", io.EOF}, {99, "", io.EOF}} {
		if n, err := r.ReadAt(ctx, buf, tt.offset); string(buf[:n]) != tt.want || !errors.Is(err, tt.err) {
			t.Errorf("at %d: %q, %v", tt.offset, buf[:n], err)
		}
	}
	if err := errors.Join(r.Close(), w.Close()); err != nil {
		t.Error(err)
	}
	if left := <-g.streams; left != 0 {
		t.Errorf("%d handles are open", left)
	}
	if b, err := os.ReadFile(filepath.Join(g.root, "new")); string(b) != "\x00\x00abc" || err != nil {
		t.Errorf("wrote %q, %v", b, err)
	}

	if r, err = opener.OpenHandle(ctx, "/file"); err != nil {
		t.Fatal(err)
	}
	if _, err := opener.OpenHandle(ctx, "/break"); !kind.Is(err, kind.Unavailable) {
		t.Errorf("a stream that breaks: %v", err)
	}
	if _, err := r.ReadAt(ctx, buf, 0); !kind.Is(err, kind.Unavailable) {
		t.Errorf("a handle of a stream that broke: %v", err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if r, err = opener.OpenHandle(ctx, "/file"); err != nil {
		t.Fatalf("on a new stream: %v", err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

func TestWatchMissing(t *testing.T) {
	g, ctx := newGateway(t), t.Context()
	if err := os.WriteFile(filepath.Join(g.root, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	f, _ := g.services(backend.New(g), false).Filesystem.Files(nil)
	w := f.(session.MissingWatcher)
	if changed, err := w.WatchMissing(ctx, []string{"/file"}, ""); changed != nil || err != nil {
		t.Errorf("a file that exists: %v", err)
	}
	changed, err := w.WatchMissing(ctx, []string{"/missing"}, "/file")
	if changed == nil || err != nil {
		t.Fatal(err)
	}
	go func() { g.appeared <- struct{}{} }()
	changed()
	ctx, cancel := context.WithCancel(ctx)
	if changed, err = w.WatchMissing(ctx, []string{"/missing"}, ""); changed == nil || err != nil {
		t.Fatal(err)
	}
	cancel()
	changed()
}

// A policy is sent with each operation that it does not allow on every file: the sandbox
// enforces it, or refuses.
func TestConfinedFiles(t *testing.T) {
	g, ctx := newGateway(t), t.Context()
	fs := g.services(backend.New(g), false).Filesystem
	tests := []struct {
		name          string
		c             *process.Confinement
		reads, writes bool // are confined
	}{
		{"none", nil, false, false},
		{"read-only", &process.Confinement{Read: []string{"/"}}, false, true},
		{"workspace", &process.Confinement{Read: []string{"/"}, Write: []string{"/w"}}, false, true},
		{"some reads", &process.Confinement{Read: []string{"/a"}}, true, true},
		{"a denied path", &process.Confinement{Read: []string{"/"}, Write: []string{"/"}, Deny: []string{"/a"}}, true, true},
		{"a read-only path", &process.Confinement{Read: []string{"/a"}, Write: []string{"/"}}, false, true},
		{"nothing", &process.Confinement{}, true, true},
		{"everything", &process.Confinement{Write: []string{"/"}}, false, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f, err := fs.Files(tt.c)
			if err != nil {
				t.Fatal(err)
			}
			_, readErr := f.Stat(ctx, "/")
			_, _, listErr := f.List(ctx, "/", 9)
			walkErr := f.Walk(ctx, "/", &session.WalkOptions{}, func(session.Found) bool { return true })
			_, realErr := f.(session.RealPather).RealPath(ctx, "/")
			for i, err := range []error{readErr, listErr, walkErr, realErr} {
				if kind.Is(err, kind.Unimplemented) != tt.reads || !tt.reads && err != nil {
					t.Errorf("read %d: %v", i, err)
				}
			}
			for i, err := range []error{
				f.MakeDir(ctx, "/w", true), f.Write(ctx, "/w/a", nil), f.(session.Copier).Copy(ctx, "/w/a", "/w/b", false), f.Remove(ctx, "/w", true, true),
			} {
				if kind.Is(err, kind.Unimplemented) != tt.writes || !tt.writes && err != nil {
					t.Errorf("write %d: %v", i, err)
				}
			}
		})
	}
}
