//go:build linux

package shim

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestRawListener uses a unix socket: a vsock would need a VM.
func TestRawListener(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	u, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	f, err := u.File()
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	l, err := listenRaw(f.Fd())
	f.Close()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		client, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		server, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(client, "word"); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 4)
		if _, err := io.ReadFull(server, got); err != nil || string(got) != "word" {
			t.Errorf("got %q, %v", got, err)
		}
		if err := server.SetReadDeadline(time.Unix(1, 0)); err != nil {
			t.Error(err)
		}
		if _, err := server.Read(got); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("after the deadline: %v", err)
		}
		client.Close()
		server.Close()
	}
	ended := make(chan error, 1)
	go func() {
		_, err := l.Accept()
		ended <- err
	}()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("accepted after Close")
	}
}
