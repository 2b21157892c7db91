package rig

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// The environment of a test run.
const (
	// EnvBinary names a binary to test instead of one built from this tree.
	EnvBinary = "MILLRACE_E2E_BINARY"
	// EnvDriver names the driver of all sandboxes.
	EnvDriver = "MILLRACE_E2E_DRIVER"
)

const buildTimeout = 15 * time.Minute

// Binary is the program under test, built once a test run.
func Binary(t testing.TB) string {
	t.Helper()
	path, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var built = sync.OnceValues(build)

// build compiles the root of the repository. The cache makes the second run of
// an unchanged tree cheap, so that the binary's place need not be kept.
func build() (string, error) {
	if p := os.Getenv(EnvBinary); p != "" {
		return filepath.Abs(p)
	}
	dir := buildDir()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), buildTimeout)
	defer cancel()
	for _, b := range []struct{ name, pkg, env string }{
		{"millrace", ".", "CGO_ENABLED=" + os.Getenv("CGO_ENABLED")},
		{"millrace-shim", "./services/hostd/cmd/millrace-shim", "CGO_ENABLED=0"}, // static, as in a release
	} {
		cmd := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(dir, b.name), b.pkg)
		cmd.Dir, cmd.Env = Root(), append(os.Environ(), b.env)
		if msg, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("build %s: %w\n%s", b.pkg, err, msg)
		}
	}
	return filepath.Join(dir, "millrace"), nil
}

// buildDir is this run's own: two runs at a time must not write one file.
func buildDir() string {
	return filepath.Join(os.TempDir(), fmt.Sprintf("millrace-e2e-bin-%d-%d", os.Getuid(), os.Getpid()))
}

// Root is the repository's root.
func Root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Dir(filepath.Dir(filepath.Dir(file)))
}

// Forget removes what a run left on the disk; TestMain calls it last.
func Forget() error {
	if os.Getenv(EnvBinary) != "" {
		return nil
	}
	return os.RemoveAll(buildDir())
}

// Driver is how sandboxes are isolated in this run: as the environment says,
// else namespace where it works, else direct.
func Driver(t testing.TB) string {
	t.Helper()
	d, err := driver()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

var driver = sync.OnceValues(func() (string, error) {
	if d := os.Getenv(EnvDriver); d != "" {
		return d, nil
	}
	bin, err := built()
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, bin, "doctor", "-o", "json", "--url", "http://127.0.0.1:1")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.TempDir(), "MILLRACE_DATA=" + filepath.Join(os.TempDir(), "millrace-e2e-none")}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	raw, err := cmd.Output()
	var report struct {
		Drivers []struct {
			Name string `json:"name"`
			OK   bool   `json:"ok"`
		} `json:"drivers"`
	}
	if bad := json.Unmarshal(raw, &report); bad != nil {
		return "", fmt.Errorf("doctor: %w: %w\n%s%s", bad, err, raw, stderr.String())
	}
	for _, d := range report.Drivers {
		if d.Name == "namespace" && d.OK {
			return d.Name, nil
		}
	}
	return "direct", nil
})
