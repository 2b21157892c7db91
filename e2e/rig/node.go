package rig

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// SDK returns the folder of the foreign clients for node.
func SDK() string { return filepath.Join(Root(), "e2e", "sdk") }

// NodeResult is the result of one case of a script.
type NodeResult struct {
	Name  string `json:"name"`
	OK    bool   `json:"ok"`
	Error string `json:"error"`
}

// installed installs the packages of SDK.
var installed = sync.OnceValue(func() error { return install(SDK(), "package-lock.json", "ci") })

// install installs node's packages in a folder, unless that was done after the last change of
// their list.
func install(dir, list, command string) error {
	if _, err := exec.LookPath("node"); err != nil {
		return skipError{"node is not installed"}
	}
	have, err := os.Stat(filepath.Join(dir, "node_modules", ".package-lock.json")) // npm writes it last
	want, wanted := os.Stat(filepath.Join(dir, list))
	if err == nil && wanted == nil && !have.ModTime().Before(want.ModTime()) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), installTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "npm", command)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("npm %s in %s: %w\n%s", command, dir, err, out)
	}
	return nil
}

const installTimeout = 5 * time.Minute

// skipError is a reason to skip.
type skipError struct{ why string }

func (e skipError) Error() string { return e.why }

// NodeTimeout bounds a script.
const NodeTimeout = 5 * time.Minute

// Node runs a script of SDK and returns the results that it prints, one per line. It skips
// the test without node.
func Node(t testing.TB, env []string, script string, args ...string) []NodeResult {
	t.Helper()
	var skip skipError
	if err := installed(); errors.As(err, &skip) {
		t.Skip(skip.why)
	} else if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), NodeTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", append([]string{script}, args...)...)
	cmd.Dir = SDK()
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.TempDir()}, env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("node %s %s: %v\n%s%s", script, strings.Join(args, " "), err, out, stderr.Bytes())
	}
	var res []NodeResult
	for l := range strings.Lines(string(out)) {
		var r NodeResult
		if err := json.Unmarshal([]byte(l), &r); err != nil {
			t.Errorf("node %s: %q: %v", script, l, err)
			continue
		}
		res = append(res, r)
	}
	if len(res) == 0 {
		t.Errorf("node %s printed nothing\n%s", script, stderr.Bytes())
	}
	return res
}
