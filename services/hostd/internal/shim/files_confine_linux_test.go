package shim

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/millrace/millrace/events/file"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/hostd/internal/confine"
	"github.com/millrace/millrace/services/hostd/internal/shim/internal/users"
)

// fileStream is the server's end of a file request.
type fileStream struct {
	net.Conn
	r    *io.PipeReader
	err  error
	over chan struct{}
}

func (s *fileStream) Read(p []byte) (int, error) { return s.r.Read(p) }
func (*fileStream) Accept()                      {}
func (*fileStream) AfterBreak(func()) func()     { return func() {} }
func (s *fileStream) Abort(err error) {
	s.err = err
	s.Conn.Close()
}

// A confined file operation can do what a process with the same confinement can.
func TestConfinedFiles(t *testing.T) {
	if err := confine.Check(); err != nil {
		t.Skip(err)
	}
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w := root + "/w"
	for _, p := range []string{"w/.git/config", "w/src/f", "w/a.txt", "other/f"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, p)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, p), []byte("text"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../other", w+"/link"); err != nil {
		t.Fatal(err)
	}
	server, err := newFiles(users.New(users.Config{}))
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	readOnly := &process.Confinement{Read: []string{"/"}}
	writable := &process.Confinement{Read: []string{"/", w + "/.git"}, Write: []string{w}}
	bare := &process.Confinement{Read: []string{"/"}, Write: []string{w + "/src"}}
	denied := &process.Confinement{Read: []string{"/"}, Deny: []string{w + "/.git"}}
	missing := &process.Confinement{Read: []string{"/"}, Write: []string{w + "/missing"}}
	tests := []struct {
		name string
		c    *process.Confinement
		req  file.Request
		want string // the kind of the error; empty: none
	}{
		{"read", readOnly, file.Request{Op: file.OpRead, Path: w + "/a.txt"}, ""},
		{"list", readOnly, file.Request{Op: file.OpList, Path: w}, ""},
		{"walk", readOnly, file.Request{Op: file.OpWalk, Path: w, MaxDirs: 9, MaxEntries: 9}, ""},
		{"read-only: write", readOnly, file.Request{Op: file.OpWrite, Path: w + "/a.txt"}, "denied"},
		{"read-only: create", readOnly, file.Request{Op: file.OpWrite, Path: w + "/new"}, "denied"},
		{"read-only: directory", readOnly, file.Request{Op: file.OpMakeDir, Path: w + "/new"}, "denied"},
		{"read-only: remove", readOnly, file.Request{Op: file.OpRemove, Path: w + "/a.txt"}, "denied"},
		{"read-only: remove a tree", readOnly, file.Request{Op: file.OpRemove, Path: w + "/src"}, "denied"},
		{"read-only: move", readOnly, file.Request{Op: file.OpMove, Path: w + "/a.txt", To: w + "/b.txt"}, "denied"},
		{"read-only: copy", readOnly, file.Request{Op: file.OpCopy, Path: w + "/a.txt", To: w + "/b.txt"}, "denied"},
		{"read-only: copy a tree", readOnly, file.Request{Op: file.OpCopy, Path: w + "/src", To: w + "/b"}, "denied"},
		{"workspace: write", writable, file.Request{Op: file.OpWrite, Path: w + "/a.txt", Single: true}, ""}, // no file can be created beside it
		{"workspace: create beside .git", writable, file.Request{Op: file.OpWrite, Path: w + "/new"}, "denied"},
		{"workspace: create below", writable, file.Request{Op: file.OpWrite, Path: w + "/src/new"}, ""},
		{"workspace: copy", writable, file.Request{Op: file.OpCopy, Path: "/etc/passwd", To: w + "/src/copy"}, ""},
		{"workspace: write to .git", writable, file.Request{Op: file.OpWrite, Path: w + "/.git/config"}, "denied"},
		{"workspace: copy over .git", writable, file.Request{Op: file.OpCopy, Path: w + "/src", To: w + "/.git"}, "denied"},
		{"workspace: write outside", writable, file.Request{Op: file.OpWrite, Path: root + "/other/f"}, "denied"},
		{"workspace: write outside by a link", writable, file.Request{Op: file.OpWrite, Path: w + "/link/f"}, "denied"},
		{"workspace: remove outside by a link", writable, file.Request{Op: file.OpRemove, Path: w + "/link/f"}, "denied"},
		{"workspace: move in from outside", bare, file.Request{Op: file.OpMove, Path: root + "/other/f", To: w + "/src/stolen"}, "denied"},
		{"workspace: compose from outside", bare, file.Request{Op: file.OpCompose, Path: w + "/src/all", Sources: []string{root + "/other/f"}}, ""}, // the source stays
		{"denied: read", denied, file.Request{Op: file.OpRead, Path: w + "/.git/config"}, "denied"},
		{"denied: list", denied, file.Request{Op: file.OpList, Path: w + "/.git"}, "denied"},
		{"denied: copy", denied, file.Request{Op: file.OpCopy, Path: w + "/.git", To: w + "/src/git"}, "denied"},
		{"a missing root", missing, file.Request{Op: file.OpRead, Path: w + "/a.txt"}, "invalid"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.req.Confine = tt.c
			ours, theirs := net.Pipe()
			in, out := io.Pipe()
			st := &fileStream{Conn: theirs, r: in, over: make(chan struct{})}
			go func() {
				defer close(st.over)
				server.Serve(st)
			}()
			go io.Copy(io.Discard, ours)
			go func() {
				out.Write(file.AppendFrame(nil, tt.req.Append(nil)))
				if tt.req.Op == file.OpWrite {
					out.Write([]byte("new content"))
				}
				out.Close()
			}()
			<-st.over
			in.Close()
			ours.Close()
			err := st.err
			if got := kindName(err); got != tt.want {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
	for _, p := range []string{w + "/.git/config", root + "/other/f"} {
		if b, err := os.ReadFile(p); err != nil || string(b) != "text" {
			t.Errorf("%s: %q, %v", p, b, err)
		}
	}
	if b, err := os.ReadFile(w + "/a.txt"); err != nil || string(b) != "new content" {
		t.Errorf("wrote %q, %v", b, err)
	}
	if err := os.WriteFile(w+"/new", nil, 0o600); err != nil { // by whatever thread: none is left restricted
		t.Error(err)
	}
}

func kindName(err error) string {
	if err == nil {
		return ""
	}
	return kind.Of(err).String()
}
