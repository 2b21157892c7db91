//go:build linux

package drivertest

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/events/bootstrap"
	"github.com/millrace/millrace/events/frame"
	"github.com/millrace/millrace/services/hostd/internal/driver"
)

// testConfig: the runtime of conversations runs in an instance, and its configuration is in memory
// and in no snapshot of files.
func (s *suite) testConfig(caps driver.Caps) func(*testing.T) {
	return func(t *testing.T) {
		if !caps.Config {
			t.Skip("the driver keeps no directory in memory")
		}
		b := s.create(t, nil)
		if got := b.sh(t, "stat -f -c %T "+bootstrap.Directory+"; stat -c %a "+bootstrap.Directory); got != "tmpfs\n700" {
			t.Errorf("got %q", got)
		}
		canary := rand.Text()
		spec := bootstrap.Start(bootstrap.Config{Secrets: map[string]string{"LLM_API_KEY": canary}}, "1")[0]
		var env []string
		for name, value := range spec.Env {
			env = append(env, name+"="+value)
		}
		in := frame.Append(nil, frame.Text, []byte(`{"type":"exec","command":"echo $LLM_API_KEY"}`))
		in = frame.Append(in, frame.Text, []byte("echo"))
		r := send(t, b.Instance, request{Call: "stdio", Args: append([]string{spec.Cmd}, spec.Args...), Env: env, Stdin: string(in), UID: -1})
		var texts []string
		for f, err := range frame.NewDecoder(frame.MaxFromRuntime).Feed([]byte(r.Out)) {
			if err != nil {
				t.Fatalf("%v: %q", err, r.Out)
			}
			if f.Kind == frame.Text {
				texts = append(texts, string(f.Payload))
			}
		}
		got := strings.Join(texts, "\n")
		for _, want := range []string{`{"type":"stdout","data":"` + canary + `\n"}`, `{"type":"exit","exit_code":0}`, "echo"} {
			if !strings.Contains(got, want) {
				t.Errorf("the runtime printed %q and %q, without %s", r.Out, r.Err, want)
			}
		}
		if got := b.sh(t, "cat "+bootstrap.Directory+"/"+bootstrap.EnvFile); !strings.Contains(got, canary) {
			t.Errorf("env.json: %q", got)
		}
		noTrace(t, b.spec.Dir, canary)
		if !caps.Files {
			return
		}
		dir := b.snapshot(t)
		noTrace(t, dir, canary)
		if got := s.fork(t, dir).sh(t, "ls -A "+bootstrap.Directory+"; stat -f -c %T "+bootstrap.Directory); got != "tmpfs" {
			t.Errorf("an instance made from a snapshot has %q", got)
		}
	}
}

// noTrace checks that no file in a directory of the host contains the text.
func noTrace(t *testing.T, dir, text string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrPermission) {
			return fs.SkipDir // an instance wrote it
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if err == nil && bytes.Contains(b, []byte(text)) {
			t.Errorf("%s contains the value of a secret", path)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// treeConfig: files that a template has in the place of the configuration stay visible.
func treeConfig(t *testing.T, s *suite) {
	for _, c := range []struct{ name, path, show, want string }{
		{"files", "app/config/theirs", "cat /app/config/theirs", "theirs"},
		{"a file instead of the directory", "app/config", "cat /app/config", "theirs"},
		{"a file instead of its parent", "app", "cat /app", "theirs"},
		{"files beside it", "app/beside", "cat /app/beside; stat -f -c %T /app/config", "theirstmpfs"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if s.machine && c.path != "app/config" {
				t.Skip("the same code as that of the driver namespace, and a machine for each takes long")
			}
			tree := Tree(t)
			path := filepath.Join(tree, c.path)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte("theirs"), 0o644); err != nil {
				t.Fatal(err)
			}
			b := s.create(t, func(sp *driver.Spec) { sp.Template, sp.Root = "tree", tree })
			if got := b.sh(t, c.show); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
