package rig

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Environment variables of a test run.
const (
	// EnvBinary names a binary to test instead of one built from this tree.
	EnvBinary = "MILLRACE_E2E_BINARY"
	// EnvDriver names the driver of all sandboxes.
	EnvDriver = "MILLRACE_E2E_DRIVER"
)

const buildTimeout = 15 * time.Minute

// Binary returns the path of the program under test, which is built once per test run.
func Binary(t testing.TB) string {
	t.Helper()
	path, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var built = sync.OnceValues(build)

// build compiles the root of the repository. The build cache makes a second run of an
// unchanged tree cheap, so the binary is not kept.
func build() (string, error) {
	if p := os.Getenv(EnvBinary); p != "" {
		return filepath.Abs(p)
	}
	return compile(Root(), buildDir())
}

// compile builds the program and its shim from the tree root into dir, with additional
// flags of `go build`, and returns the program's path.
func compile(root, dir string, flags ...string) (string, error) {
	path := filepath.Join(dir, "millrace")
	err := gobuild(root, ".", path, os.Getenv("CGO_ENABLED"), flags...)
	if err == nil { // static, as in a release
		err = gobuild(root, "./services/hostd/cmd/millrace-shim", filepath.Join(dir, "millrace-shim"), "0", flags...)
	}
	if err == nil {
		err = gobuild(root, "./services/hostd/cmd/millrace-agent", filepath.Join(dir, "agent"), "0", flags...)
	}
	if err == nil {
		err = appendAgent(dir)
	}
	return path, err
}

// appendAgent appends the agent to the shim, as Dockerfile does.
func appendAgent(dir string) error {
	agent, err := os.ReadFile(filepath.Join(dir, "agent"))
	if err != nil {
		return err
	}
	shim, err := os.OpenFile(filepath.Join(dir, "millrace-shim"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	z := gzip.NewWriter(shim)
	_, err = z.Write(agent)
	return errors.Join(err, z.Close(), shim.Close(), os.Remove(filepath.Join(dir, "agent")))
}

// gobuild builds the package pkg of the module in dir.
func gobuild(dir, pkg, to, cgo string, flags ...string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), buildTimeout)
	defer cancel()
	// Debug information takes half of the time of a link.
	cmd := exec.CommandContext(ctx, "go", slices.Concat([]string{"build", "-ldflags=-s -w"}, flags, []string{"-o", to, pkg})...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED="+cgo, "GOWORK=off")
	if msg, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", to, err, msg)
	}
	return nil
}

// Changed returns a program built from this tree with one text of one file replaced, with
// its shim beside it. It exists until the end of the test.
func Changed(t testing.TB, file, from, to string) string {
	t.Helper()
	path := filepath.Join(Root(), file)
	text, err := os.ReadFile(path)
	if err != nil || strings.Count(string(text), from) != 1 {
		t.Fatalf("%s does not have %q once: %v", file, from, err)
	}
	dir := t.TempDir()
	changed, overlay := filepath.Join(dir, filepath.Base(file)), filepath.Join(dir, "overlay.json")
	raw, err := json.Marshal(map[string]any{"Replace": map[string]string{path: changed}})
	if err == nil {
		err = errors.Join(os.WriteFile(overlay, raw, 0o600), os.WriteFile(changed, []byte(strings.Replace(string(text), from, to, 1)), 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	bin, err := compile(Root(), dir, "-overlay", overlay)
	if err != nil {
		t.Fatal(err)
	}
	return bin
}

// buildDir returns the directory of this run: concurrent runs must not write one file.
func buildDir() string {
	return filepath.Join(os.TempDir(), fmt.Sprintf("millrace-e2e-bin-%d-%d", os.Getuid(), os.Getpid()))
}

// Root returns the repository's root.
func Root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Dir(filepath.Dir(filepath.Dir(file)))
}

// RemoveBuilds removes the files of a run; TestMain calls it last.
func RemoveBuilds() error {
	if os.Getenv(EnvBinary) != "" {
		return nil
	}
	return os.RemoveAll(buildDir())
}

// Driver returns the driver of this run: that of the environment, else namespace if it
// works, else direct.
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
