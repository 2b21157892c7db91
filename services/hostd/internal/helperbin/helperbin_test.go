package helperbin

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestBuildsAllPrograms builds what the tests of drivers need here, which takes time.
func TestBuildsAllPrograms(t *testing.T) {
	for _, p := range []Program{Shim(), MCPGateway(), Runsc()} {
		path, err := p.Build(t.Context(), slog.Info)
		if errors.Is(err, exec.ErrNotFound) {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		again, err := p.Build(t.Context(), slog.Info)
		if err != nil || again != path {
			t.Errorf("the second time: %s, %v; want %s", again, err, path)
		}
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("finding %s took %v", p.Name, took)
		}
		// It starts, and rejects an unknown flag.
		var exit *exec.ExitError
		if err := exec.Command(path, "-no-such-flag").Run(); !errors.As(err, &exit) {
			t.Errorf("%s: %v, want that it rejects the flag", path, err)
		}
	}
}

func TestBuildEndsWithItsContext(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	p := Runsc()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Build(ctx, slog.Info); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, err := p.Find(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("find: %v, want fs.ErrNotExist", err)
	}
}

func TestBuildReportsTheError(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	p := Program{Name: "none", Main: "services/hostd/internal/helperbin", Inputs: []string{"go.mod"}}
	t.Setenv("GOFLAGS", "-mod=nonsense")
	if _, err := p.Build(t.Context(), slog.Info); err == nil || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("got %v", err)
	}
	dir, err := cacheDir()
	if err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "none-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestFingerprintFollowsTheSource(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p := Program{Name: "p", Inputs: []string{"."}}
	seen := make(map[string]string)
	for _, tt := range []struct {
		step, name, text string
		same             bool
	}{
		{"a file", "a.go", "package a", false},
		{"another", "b.go", "package a", false},
		{"a changed one", "b.go", "package a\n", false},
		{"a test", "a_test.go", "package a", true},
		{"a text", "README", "a", true},
		{"other modules", "go.sum", "a", false},
	} {
		write(tt.name, tt.text)
		sum, err := p.fingerprint(root)
		if err != nil {
			t.Fatal(err)
		}
		if before, ok := seen[sum]; ok != tt.same {
			t.Errorf("%s: the same as after %q: %v, want %v", tt.step, before, ok, tt.same)
		}
		seen[sum] = tt.step
	}
}
