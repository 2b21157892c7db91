package main

import (
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
)

// What is not the gateway's own runs as somebody who is not root, in his home's
// environment and in a directory of his.
func TestCommandsAreNotRoots(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("who is not root cannot be somebody else")
	}
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Skip(err)
	}
	top, err := os.MkdirTemp("/tmp", "mcp") // others may not enter t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(top) //nolint:errcheck // nobody looks there
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
