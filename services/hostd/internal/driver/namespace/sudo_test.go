//go:build linux

package namespace

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// The stub runs the program that it names with the stub's arguments and environment.
func TestSudoStub(t *testing.T) {
	for path, want := range map[string]string{"/bin/sh": "a b c d", "/no/such/program": "exit status 127"} {
		stub, ok := sudoStub(runtime.GOARCH, path)
		if !ok {
			t.Skip("no stub for " + runtime.GOARCH)
		}
		file := filepath.Join(t.TempDir(), "stub")
		if err := os.WriteFile(file, stub, 0o755); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), file, "-c", `echo "$0 $1 $A $B"`, "a", "b")
		cmd.Env = []string{"A=c", "B=d"}
		out, err := cmd.Output()
		got := strings.TrimSpace(string(out))
		if end := new(exec.ExitError); errors.As(err, &end) {
			got = end.Error()
		}
		if got != want {
			t.Errorf("%s: %q, want %q (%v)", path, got, want, err)
		}
	}
}

// The copy of sudo changes with the shim, and other users can only execute it.
func TestSudoIsCopiedIntoEtc(t *testing.T) {
	etc, templates, program := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "shim")
	var seen []string
	for _, text := range []string{"one", "another"} {
		if err := os.WriteFile(program, []byte(text), 0o4700); err != nil {
			t.Fatal(err)
		}
		dir, err := prepareEtc(etc, templates, program)
		if err != nil {
			t.Fatal(err)
		}
		st, err := os.Stat(filepath.Join(dir, sudoFile))
		if err != nil || st.Mode() != 0o755 {
			t.Fatalf("%v, %v", st, err)
		}
		got, err := os.ReadFile(filepath.Join(dir, sudoFile))
		if string(got) != text {
			t.Errorf("%q, %v; want %q", got, err, text)
		}
		seen = append(seen, dir)
	}
	if seen[0] == seen[1] {
		t.Error("two programs share one copy")
	}
}
