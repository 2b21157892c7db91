package app

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/cli/command"
	"github.com/millrace/millrace/internal/cli/output"
)

// configOf returns the configuration directory for a data directory, beside it.
func configOf(data string) string {
	return filepath.Join(filepath.Dir(data), filepath.Base(data)+"-config")
}

// started is a running `up`.
type started struct {
	t    *testing.T
	env  map[string]string
	out  syncBuffer
	stop func() error
}

func startUp(t *testing.T, dir string, args ...string) *started {
	t.Helper()
	s := &started{t: t, env: map[string]string{"MILLRACE_DATA": dir, "PATH": os.Getenv("PATH"), "HOME": dir, "XDG_CONFIG_HOME": configOf(dir)}}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(t.Context()))
	done, err := make(chan struct{}), error(nil)
	var errOut syncBuffer
	go func() {
		defer close(done)
		c := newRoot(command.Config{In: strings.NewReader(""), Out: &s.out, Err: &errOut, LookupEnv: func(k string) (v string, ok bool) { v, ok = s.env[k]; return }, Version: "test"})
		c.SetArgs(append([]string{"up", "--listen", "127.0.0.1:0", "--driver", "direct", "--shim", "self"}, args...))
		err = c.ExecuteContext(ctx)
	}()
	s.stop = func() error { cancel(nil); <-done; return err }
	t.Cleanup(func() {
		cancel(errInterrupted) // as by Ctrl-C, which ends all sandboxes
		if err := s.stop(); err != nil {
			t.Errorf("up: %v\n%s", err, errOut.String())
		}
	})
	if !s.out.await("run 'echo", done) {
		t.Fatalf("up ended: %v\n%s", err, errOut.String())
	}
	return s
}

func (s *started) url() string {
	s.t.Helper()
	b, err := os.ReadFile(filepath.Join(s.env["MILLRACE_DATA"], command.AddressFile))
	if err != nil {
		s.t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

func (s *started) verb(args ...string) (string, error) {
	out, errOut, err := root(s.t.Context(), s.env, args...)
	if err != nil {
		s.t.Logf("millrace %s: %v\n%s", strings.Join(args, " "), err, errOut)
	}
	return out, err
}

func TestUpServesAndEnds(t *testing.T) {
	dir := t.TempDir()
	up := startUp(t, dir)
	for _, path := range []string{"/livez", "/readyz", "/health"} {
		resp, err := http.Get(up.url() + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", path, resp.Status)
		}
	}
	if _, _, err := root(t.Context(), up.env, "up", "--listen", "127.0.0.1:0"); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("second up on the same data: %v", err)
	}
	if out, err := up.verb("hosts"); err != nil || !strings.Contains(out, "local") {
		t.Errorf("hosts: %s", out)
	}
	if err := up.stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, command.AddressFile)); err == nil {
		t.Error("the address file remains after the stop")
	}
}

// The client's default timeouts work with a lower --max-timeout.
func TestClientWorksWithAShortMaxTimeout(t *testing.T) {
	up := startUp(t, t.TempDir(), "--max-timeout", "60s")
	if out, err := up.verb("run", "-n", "echo x"); err != nil || out != "x\n" {
		t.Errorf("run: %q, %v", out, err)
	}
	if out, err := up.verb("sandbox", "create"); err != nil || out == "" {
		t.Errorf("create: %q, %v", out, err)
	}
	if _, err := up.verb("sandbox", "create", "--timeout", "61s"); err == nil {
		t.Error("create: an explicit timeout above the maximum is accepted")
	}
}

// Records from before a restart can be read after it, with the same key.
func TestUpKeepsRecordsAcrossRestarts(t *testing.T) {
	dir := t.TempDir()
	up := startUp(t, dir)
	key, err := os.ReadFile(filepath.Join(dir, command.KeyFile))
	if err != nil {
		t.Fatal(err)
	}
	out, err := up.verb("run", "-n", "printf 'a\\nb\\n'; exit 3")
	if code, _ := output.ExitCode(err); code != 3 || out != "a\nb\n" {
		t.Fatalf("run: exit %d, %q", code, out)
	}
	list, err := up.verb("ps", "-aq")
	id := strings.TrimSpace(list)
	if err != nil || id == "" {
		t.Fatalf("ps: %q, %v", list, err)
	}
	if err := up.stop(); err != nil {
		t.Fatalf("stop: %v", err)
	}
	up = startUp(t, dir)
	if again, err := os.ReadFile(filepath.Join(dir, command.KeyFile)); err != nil || string(again) != string(key) {
		t.Errorf("key changed: %v", err)
	}
	if out, err := up.verb("logs", id); err != nil || out != "a\nb\n" {
		t.Errorf("logs after a restart: %q, %v", out, err)
	}
}
