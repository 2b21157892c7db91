package hostd

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/hostd/internal/confine"
)

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
			if tt.refused && !strings.Contains(errs, "Permission denied") && !strings.Contains(errs, "Operation not permitted") {
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
