package shim_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events/process"
)

// A shim that is to rehearse has run a program before hostd comes, of which no word
// and no end is on record, and then does as any other.
func TestRehearse(t *testing.T) {
	dir := t.TempDir()
	word := filepath.Join(dir, "word")
	if err := unix.Mkfifo(word, 0o600); err != nil {
		t.Fatal(err)
	}
	script := "#!/bin/sh\necho to nobody\necho ran > " + word + "\n"
	if err := os.WriteFile(filepath.Join(dir, "true"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	heard, err := os.OpenFile(word, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer heard.Close()                             //nolint:errcheck // it was only read from
	heard.SetReadDeadline(time.Now().Add(patience)) //nolint:errcheck // the read says so
	path := func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, "PATH="+dir+":/usr/bin:/bin") }
	socket, _ := startShimAs(t, path, "-rehearse")
	if n, err := heard.Read(make([]byte, 8)); err != nil || n != len("ran\n") {
		t.Fatalf("it runs nothing: %d, %v", n, err)
	}
	h := newHost(t, socket)
	h.connect()
	p := h.procs[h.start(process.Spec{Cmd: "echo", Args: []string{"to somebody"}})]
	h.await("the end", func() bool { return p.end != nil })
	if got := string(p.out[process.Stdout]); got != "to somebody\n" || h.err != nil || len(h.procs) != 1 {
		t.Errorf("it says %q, of %d processes; %v", got, len(h.procs), h.err)
	}
}
