package rig

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// EnvOld is the version that a rolling upgrade begins with: the path of a binary with its shim beside
// it, or a revision of Git, which is built.
const EnvOld = "MILLRACE_E2E_OLD"

// Old returns the binary that a rolling upgrade begins with: that of EnvOld, or else of the revision
// usual. Without both it is the binary under test.
func Old(t testing.TB, usual string) string {
	t.Helper()
	old := cmp.Or(os.Getenv(EnvOld), usual)
	if old == "" {
		return Binary(t)
	}
	if strings.Contains(old, string(filepath.Separator)) {
		return old
	}
	dir := t.TempDir()
	if err := checkOut(old, filepath.Join(dir, "src")); err != nil {
		t.Fatal(err)
	}
	bin, err := compile(filepath.Join(dir, "src"), filepath.Join(dir, "bin"), nil)
	if err != nil {
		t.Fatal(err)
	}
	return bin
}

// checkOut writes the files of a revision to dir.
func checkOut(revision, dir string) error {
	git := exec.Command("git", "archive", "--format=tar", revision)
	git.Dir = Root()
	var msg bytes.Buffer
	git.Stderr = &msg
	files, err := git.Output()
	if err != nil {
		return fmt.Errorf("git archive %s: %w: %s", revision, err, &msg)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	tar := exec.Command("tar", "-x", "-C", dir)
	tar.Stdin = bytes.NewReader(files)
	if out, err := tar.CombinedOutput(); err != nil {
		return fmt.Errorf("tar: %w: %s", err, out)
	}
	return nil
}

// Upgrade stops a program by SIGTERM and restarts it from another binary.
func (s *Split) Upgrade(name, binary string) error {
	p := s.Program(name)
	if err := p.Term(); err != nil {
		return err
	}
	p.bin = binary
	return s.RestartProgram(name)
}
