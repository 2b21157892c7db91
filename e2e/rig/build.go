package rig

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
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
	return compile(Root(), buildDir(), nil)
}

// compile builds the program and its shim from the tree root into dir, with files of the tree replaced by
// others, and returns the program's path.
func compile(root, dir string, replace map[string]string) (string, error) {
	path, packed := filepath.Join(dir, "millrace"), filepath.Join(dir, "agent.gz")
	flags, err := overlay(dir, replace)
	if err == nil {
		err = gobuild(root, ".", path, os.Getenv("CGO_ENABLED"), flags...)
	}
	// The others are static, as in a release. The shim embeds the agent.
	if err == nil {
		err = gobuild(root, "./services/hostd/cmd/millrace-agent", filepath.Join(dir, "agent"), "0", flags...)
	}
	if err == nil {
		err = pack(packed, filepath.Join(dir, "agent"))
	}
	if err == nil {
		with := maps.Clone(replace)
		if with == nil {
			with = map[string]string{}
		}
		with[filepath.Join(root, "services/hostd/internal/agentexec/agent.gz")] = packed
		flags, err = overlay(dir, with)
	}
	if err == nil {
		err = gobuild(root, "./services/hostd/cmd/millrace-shim", filepath.Join(dir, "millrace-shim"), "0", flags...)
	}
	return path, err
}

// overlay returns flags of a build that replace files.
func overlay(dir string, replace map[string]string) ([]string, error) {
	if len(replace) == 0 {
		return nil, nil
	}
	raw, err := json.Marshal(map[string]any{"Replace": replace})
	file := filepath.Join(dir, "overlay.json")
	if err == nil {
		err = os.WriteFile(file, raw, 0o600)
	}
	return []string{"-overlay", file}, err
}

// pack compresses a file.
func pack(to, from string) error {
	raw, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	f, err := os.Create(to)
	if err != nil {
		return err
	}
	z := gzip.NewWriter(f)
	_, err = z.Write(raw)
	return errors.Join(err, z.Close(), f.Close())
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
	changed := filepath.Join(dir, "changed-"+filepath.Base(file))
	if err := os.WriteFile(changed, []byte(strings.Replace(string(text), from, to, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	bin, err := compile(Root(), dir, map[string]string{path: changed})
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
