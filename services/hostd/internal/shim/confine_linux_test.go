package shim_test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/hostd/internal/confine"
)

// A confined process probes from inside what it may do.
func TestConfinement(t *testing.T) {
	if err := confine.Check(); err != nil {
		t.Skip(err)
	}
	w := workspace(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	readOnly := process.Confinement{Read: []string{"/"}}
	writable := process.Confinement{Read: []string{"/", w + "/.git"}, Write: []string{w}, Optional: []string{w + "/.git"}}
	bare := process.Confinement{Read: []string{"/", w + "/src/.git"}, Write: []string{w + "/src"}, Optional: []string{w + "/src/.git"}}
	network := process.Confinement{Write: []string{"/"}, Network: true}
	denied := process.Confinement{Read: []string{"/"}, Deny: []string{w + "/.git"}}
	tests := []struct {
		name    string
		c       process.Confinement
		script  string
		refused bool
	}{
		{"read-only: read", readOnly, "cat /etc/passwd " + w + "/.git/config", false},
		{"read-only: list", readOnly, "ls / " + w, false},
		{"read-only: execute", readOnly, "/bin/sh -c true", false},
		{"read-only: /dev/null", readOnly, "echo x >/dev/null", false},
		{"read-only: create", readOnly, "echo x >" + w + "/new", true},
		{"read-only: change", readOnly, "echo x >>" + w + "/a.txt", true},
		{"read-only: truncate", readOnly, "truncate -s 0 " + w + "/a.txt", true},
		{"read-only: remove", readOnly, "rm " + w + "/a.txt", true},
		{"read-only: rename", readOnly, "mv " + w + "/a.txt " + w + "/b.txt", true},
		{"read-only: by a child that leaves the session", readOnly, "setsid -w sh -c 'echo x >" + w + "/new'", true},

		{"workspace: read outside", writable, "cat /etc/passwd", false},
		{"workspace: change a file", writable, "echo x >>" + w + "/a.txt", false},
		{"workspace: create below", writable, "mkdir -p " + w + "/src/d && echo x >" + w + "/src/d/new && mv " + w + "/src/d/new " + w + "/src/e", false},
		{"workspace: create beside .git", writable, "echo x >" + w + "/new", true}, // see package confine
		{"workspace: create without .git", bare, "echo x >" + w + "/src/new && rm " + w + "/src/new", false},
		{"workspace: write outside", writable, "echo x >" + filepath.Dir(w) + "/outside", true},
		{"workspace: read .git", writable, "cat " + w + "/.git/config", false},
		{"workspace: change .git", writable, "echo x >>" + w + "/.git/config", true},
		{"workspace: add to .git", writable, "echo x >" + w + "/.git/hook", true},
		{"workspace: remove from .git", writable, "rm " + w + "/.git/config", true},
		{"workspace: replace .git", writable, "mv " + w + "/.git " + w + "/src/.git", true},
		{"workspace: link into .git", writable, "ln " + w + "/a.txt " + w + "/.git/hook", true},
		{"workspace: by the path of another process", writable, "echo x >/proc/$PPID/root" + w + "/.git/hook", true},

		{"denied: read", denied, "cat " + w + "/.git/config", true},
		{"denied: list", denied, "ls " + w + "/.git", true},
		{"denied: write", denied, "echo x >" + w + "/.git/hook", true},
		{"denied: the rest", denied, "cat " + w + "/a.txt", false},

		{"network: connect", network, "exec 3<>/dev/tcp/127.0.0.1/" + port, false},
		{"no network: connect", readOnly, "exec 3<>/dev/tcp/127.0.0.1/" + port, true},
		{"no network: connect from a child", readOnly, "setsid -w bash -c 'exec 3<>/dev/tcp/127.0.0.1/" + port + "'", true},
		{"no network: datagram", readOnly, "echo x >/dev/udp/127.0.0.1/" + port, true},
		{"no network: unix socket", readOnly, `python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect("/nonexistent")' 2>&1 | grep -q PermissionError && exit 1`, true},
		{"no network: pair of sockets", readOnly, `python3 -c 'import socket; a, b = socket.socketpair(); a.send(b"x"); b.recv(1)'`, false},
	}
	h := connected(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := h.awaitEnd(h.start(process.Spec{Cmd: "/bin/bash", Args: []string{"-c", tt.script}, Confine: &tt.c}))
			if refused := describe(p.end) != "exited 0"; p.started == 0 || refused != tt.refused {
				t.Errorf("%s: %s%s", describe(p.end), p.out[process.Stdout], p.out[process.Stderr])
			}
		})
	}
	for _, name := range []string{"a.txt", ".git/config"} {
		if b, err := os.ReadFile(filepath.Join(w, name)); err != nil || !strings.HasPrefix(string(b), "text\n") {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
}

// workspace returns a directory with a file, a subdirectory and a repository.
func workspace(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w := filepath.Join(dir, "w")
	for _, d := range []string{".git", "src"} {
		if err := os.MkdirAll(filepath.Join(w, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{"a.txt", ".git/config"} {
		if err := os.WriteFile(filepath.Join(w, f), []byte("text\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// A confinement that cannot be enforced is an error, and nothing runs.
func TestConfinementThatCannotBeEnforced(t *testing.T) {
	want := kind.Invalid
	if confine.Check() != nil {
		want = kind.Unimplemented
	}
	h := connected(t)
	p := h.awaitEnd(h.start(process.Spec{Cmd: "true", Confine: &process.Confinement{Read: []string{"/no/such/directory"}}}))
	if f, ok := p.events[0].Body.(process.Failed); !ok || kind.Kind(f.Kind) != want || p.end.Cause != process.CauseNotStarted {
		t.Errorf("got %+v", p.events)
	}
}
