package hostd

import (
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/hostd/internal/confine"
)

// refusals are what programs print when the kernel refuses something. A link that would give
// more rights is one across devices.
var refusals = []string{"Permission denied", "Operation not permitted", "Invalid cross-device link"}

// A confined process probes from inside a sandbox of the namespace driver, as its default user.
func TestConfinementInASandbox(t *testing.T) {
	if err := confine.Check(); err != nil {
		t.Skip(err)
	}
	r := hostOf(t, "namespace")
	sbx := r.sandbox()
	made := r.whole(r.start(sbx, sh("mkdir -p ~/w/.git ~/w/src && echo text | tee ~/w/a.txt ~/w/.git/config && cd ~/w && pwd -P")))
	lines := strings.Fields(string(made.out[process.Stdout]))
	if describe(made.end()) != "exited 0" {
		t.Fatalf("%s: %s", describe(made.end()), made.out[process.Stderr])
	}
	w := lines[len(lines)-1]
	readOnly := &process.Confinement{Read: []string{"/"}}
	writable := &process.Confinement{Read: []string{"/", w + "/.git", w + "/.codex"}, Write: []string{w, "/tmp"}, Optional: []string{w + "/.git", w + "/.codex"}}
	tests := []struct {
		name    string
		c       *process.Confinement
		script  string
		refused bool
	}{
		{"read-only: read", readOnly, "cat /etc/passwd a.txt .git/config", false},
		{"read-only: write", readOnly, "echo x >>a.txt", true},
		{"read-only: write to /tmp", readOnly, "echo x >/tmp/x", true},
		{"workspace: write inside", writable, "echo x >>a.txt && echo x >src/new && echo x >/tmp/x", false},
		{"workspace: write outside", writable, "echo x >../outside", true},
		{"workspace: write to .git", writable, "echo x >.git/hook", true},
		{"workspace: replace .git", writable, "mv .git src", true},
		{"workspace: remove .git", writable, "rm -rf .git", true},
		{"workspace: write to .git by a symbolic link", writable, "ln -s ../.git src/link && echo x >>src/link/config", true},
		{"workspace: put a file into .git", writable, "mv src/new .git/", true},
		{"workspace: put a hard link into .git", writable, "ln a.txt .git/hook", true},
		{"workspace: write to .git by a hard link", writable, "ln .git/config src/config && echo x >>src/config", true},
		{"workspace: make .codex", writable, "mkdir .codex", true},
		{"workspace: add an entry beside .git", writable, "echo x >beside", true},
		{"workspace: remove an entry beside .git", writable, "rm a.txt", true},
		{"workspace: add an entry further below", writable, "mkdir src/dir && echo x >src/dir/new", false},
		{"workspace: read .git", writable, "cat .git/config", false},
		{"workspace: connect", writable, "exec 3<>/dev/tcp/127.0.0.1/9", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			spec := process.Spec{Cmd: "/bin/bash", Args: []string{"-c", tt.script}, Cwd: w, Confine: tt.c}
			rec := r.whole(r.start(sbx, spec))
			if !strings.Contains(rec.types(), "start ") || (describe(rec.end()) != "exited 0") != tt.refused {
				t.Errorf("%s, %s: %s", rec.types(), describe(rec.end()), rec.out[process.Stderr])
			}
			errs := string(rec.out[process.Stderr])
			if tt.refused && !slices.ContainsFunc(refusals, func(r string) bool { return strings.Contains(errs, r) }) {
				t.Errorf("got the error %q", errs)
			}
		})
	}
}

// A kernel without landlock, such as gVisor's, starts no confined process.
func TestConfinementIsRefusedWithoutLandlock(t *testing.T) {
	r := hostOf(t, "gvisor")
	sbx := r.sandbox()
	rec := r.whole(r.start(sbx, process.Spec{Cmd: "true", Confine: &process.Confinement{Read: []string{"/"}}}))
	if got, want := rec.types(), "accepted error end "; got != want {
		t.Fatalf("got the events %q, want %q", got, want)
	}
	for _, e := range rec.events {
		if f, ok := e.Body.(process.Failed); ok && (kind.Kind(f.Kind) != kind.Unimplemented || !strings.Contains(f.Message, "landlock")) {
			t.Errorf("got %+v", f)
		}
	}
}

// hostOf returns a host with a driver.
func hostOf(t *testing.T, driver string) *rig {
	t.Helper()
	for _, d := range Probe(t.Context()) {
		if d.Name == driver && d.Err != nil {
			t.Skip(d.Err)
		}
	}
	r := newRigOn(t, driver)
	r.begin()
	r.awaitLease(0)
	return r
}
