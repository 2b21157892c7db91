package rig

import (
	"errors"
	"path/filepath"
	"runtime"
	"testing"
)

// CLIProgram returns the program of a released version of a CLI that npm has: claude or codex. It is
// installed if needed; the test is skipped without node or on a machine that the release does not support.
func CLIProgram(t testing.TB, name, version string) string {
	t.Helper()
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.Skip("the programs are looked up for linux on amd64")
	}
	if name == "codex" {
		Codex(t, version)
		return filepath.Join(SDK(), "codex", version, "node_modules", "@openai", "codex-linux-x64", "vendor", "x86_64-unknown-linux-musl", "bin", "codex")
	}
	dir := filepath.Join(SDK(), name, version)
	codexMu.Lock()
	defer codexMu.Unlock()
	var skip skipError
	if err := install(dir, "package.json", "install"); errors.As(err, &skip) {
		t.Skip(skip.why)
	} else if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "node_modules", "@anthropic-ai", "claude-code-linux-x64", "claude")
}
