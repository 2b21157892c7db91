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

// TestRehearse: a shim with -rehearse has run a program before hostd connects, without a
// record, and then works as any other.
func TestRehearse(t *testing.T) {
	dir := t.TempDir()
	word := filepath.Join(dir, "word")
	if err := unix.Mkfifo(word, 0o600); err != nil {
		t.Fatal(err)
	}
	script := "#!/bin/sh\necho unrecorded\necho ran > " + word + "\n"
	if err := os.WriteFile(filepath.Join(dir, "true"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	marker, err := os.OpenFile(word, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer marker.Close()
	marker.SetReadDeadline(time.Now().Add(patience))
	path := func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, "PATH="+dir+":/usr/bin:/bin") }
	socket, _ := startShimAs(t, path, "-rehearse")
	if n, err := marker.Read(make([]byte, 8)); err != nil || n != len("ran\n") {
		t.Fatalf("no program ran: %d, %v", n, err)
	}
	h := newHost(t, socket)
	h.connect()
	p := h.procs[h.start(process.Spec{Cmd: "echo", Args: []string{"recorded"}})]
	h.await("the end", func() bool { return p.end != nil })
	if got := string(p.out[process.Stdout]); got != "recorded\n" || h.err != nil || len(h.procs) != 1 {
		t.Errorf("output %q, %d processes; %v", got, len(h.procs), h.err)
	}
}
