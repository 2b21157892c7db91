package shim_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/services/hostd/internal/fifolink"
)

// serialShim runs a shim at the end of two FIFOs, and dials it.
func serialShim(t *testing.T) *host {
	t.Helper()
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
	open := func(path string) *os.File {
		f, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	for _, path := range []string{in, out} {
		if err := unix.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	theirs := fifolink.Pair{In: open(in), Out: open(out)}
	cmd := exec.Command(os.Args[0], "-serial", "0,1")
	cmd.Env = []string{"MILLRACE_TEST_SHIM=1"}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs.In, theirs.Out, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	h := newHost(t, "")
	var last net.Conn
	h.dial = func() (net.Conn, error) {
		if last != nil {
			last.Close()
		}
		c, err := fifolink.Dial(t.Context(), fifolink.Pair{In: open(out), Out: open(in)})
		last = c
		return c, err
	}
	h.connect()
	return h
}

func TestReconnectInAFloodOverAStream(t *testing.T) { flood(t, serialShim(t)) }

// TestChildrenDoNotInheritTheStream, regardless of its descriptors.
func TestChildrenDoNotInheritTheStream(t *testing.T) {
	h := serialShim(t)
	token := h.start(sh("ls -l /proc/self/fd"))
	h.awaitEnd(token)
	if out := string(h.procs[token].out[1]); !strings.Contains(out, "pipe:") || strings.Contains(out, "/in\n") || strings.Contains(out, "/out\n") {
		t.Errorf("descriptors: %s", out)
	}
}
