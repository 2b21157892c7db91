package hostd

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWiden(t *testing.T) {
	root := t.TempDir()
	text := func(name string) string {
		t.Helper()
		raw, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(raw))
	}
	// Of a small machine, of one that has more than enough, of one without terminals.
	for name, was := range map[string]string{"kernel/pid_max": "32768\n", "net/core/bpf_jit_limit": "264241152\n", "fs/file-max": "9223372036854775807\n"} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(was), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	widen(root, slog.New(slog.DiscardHandler))
	if got := text("kernel/pid_max"); got != "4194304" {
		t.Errorf("pid_max is %s", got)
	}
	if got := text("net/core/bpf_jit_limit"); got != "528482304" {
		t.Errorf("bpf_jit_limit is %s", got)
	}
	if got := text("fs/file-max"); got != "9223372036854775807" {
		t.Errorf("file-max is %s", got)
	}
	if _, err := os.Stat(filepath.Join(root, "kernel/pty")); err == nil {
		t.Error("a setting that there is not was made")
	}
}
