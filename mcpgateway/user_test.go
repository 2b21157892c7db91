package main

import (
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
)

// Servers do not run as root but as the sandbox's user, with its home in the environment
// and in a directory that it owns.
func TestCommandsRunUnprivileged(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("requires root")
	}
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Skip(err)
	}
	top, err := os.MkdirTemp("/tmp", "mcp") // t.TempDir is not accessible to other users
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(top)
	if err := os.Chmod(top, 0o755); err != nil {
		t.Fatal(err)
	}
	who, dir := runnerOf(nobody), filepath.Join(top, "a", "b.new")
	if err := who.own(dir); err != nil {
		t.Fatal(err)
	}
	out, err := who.command(t.Context(), dir, "/bin/sh", "-c", "id -u; id -G; echo $HOME $USER; touch mine; stat -c %u mine").Output()
	want := strings.Join([]string{nobody.Uid, nobody.Gid, nobody.HomeDir + " nobody", nobody.Uid, ""}, "\n")
	if err != nil || string(out) != want {
		t.Errorf("got %q, %v, want %q", out, err, want)
	}
}
