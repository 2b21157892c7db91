package rig

import (
	"errors"
	"path/filepath"
	"sync"
	"testing"
)

// codexMu serializes installations of the codex CLI.
var codexMu sync.Mutex

// Codex returns the launcher of a released version of the codex CLI, a script for node, which
// it installs if needed. It skips the test without node.
func Codex(t testing.TB, version string) string {
	t.Helper()
	dir := filepath.Join(SDK(), "codex", version)
	codexMu.Lock()
	defer codexMu.Unlock()
	var skip skipError
	// Without a lockfile: npm ci rejects its own for packages whose platforms are aliases.
	if err := install(dir, "package.json", "install"); errors.As(err, &skip) {
		t.Skip(skip.why)
	} else if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "node_modules", "@openai", "codex", "bin", "codex.js")
}
