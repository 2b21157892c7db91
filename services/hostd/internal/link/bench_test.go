package link_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/millrace/millrace/events/mux"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/hostd/internal/link"
	"github.com/millrace/millrace/services/hostd/internal/shim"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// TestMain turns the test binary into a shim when the environment requests it.
func TestMain(m *testing.M) {
	if os.Getenv("MILLRACE_TEST_SHIM") != "" {
		os.Exit(shim.Main(os.Args[1:], os.Stderr))
	}
	os.Exit(m.Run())
}

// attached returns a connection to a new shim.
func attached(t testing.TB, pool *link.Pool) *link.Conn {
	t.Helper()
	return attachedFor(t, pool, nil)
}

// attachedFor is attached with accept for the shim's streams.
func attachedFor(t testing.TB, pool *link.Pool, accept func(*mux.Stream)) *link.Conn {
	t.Helper()
	dir, err := os.MkdirTemp("", "link")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "s")
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	ln.SetUnlinkOnClose(false)
	f, err := ln.File()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = []string{"MILLRACE_TEST_SHIM=1"}
	cmd.ExtraFiles, cmd.Stderr = []*os.File{f}, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	f.Close()
	ln.Close()
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		os.RemoveAll(dir)
	})
	raw, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c, _, err := link.Attach(ctx, raw, &wire.Attach{Epoch: 1, Sandbox: "s"}, nil, pool, accept)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func start(c *link.Conn, rev uint64, spec process.Spec) string {
	token := strings.ToLower(ulid.Make().String())
	c.Send(func(dst []byte) []byte {
		return wire.AppendStart(dst, &wire.Start{Rev: rev, Token: token, Spec: process.AppendSpec(nil, &spec)})
	})
	return token
}

// drain reads one process's events to the end, acknowledging each, and returns the number
// of output bytes and events.
func drain(t testing.TB, c *link.Conn, pool *link.Pool, token string, pty bool) (size, events int) {
	t.Helper()
	track := link.NewTrack(pty)
	for {
		m, err := c.Next()
		if err != nil {
			t.Fatal(err)
		}
		if m.Type != wire.TypeEvent || m.Token != token {
			continue
		}
		if err := track.Take(&m.Event); err != nil {
			t.Fatal(err)
		}
		track.Flight = 0
		events++
		seq := m.Event.Seq
		if w, ok := m.Event.Body.(process.Wrote); ok {
			size += len(w.Data)
		}
		_, end := m.Event.Body.(process.Finished)
		pool.Put(m.Mem)
		c.Send(func(dst []byte) []byte { return wire.AppendMark(dst, wire.TypeAck, wire.Mark{Token: token, Seq: seq}) })
		if end {
			return size, events
		}
	}
}

// BenchmarkOutput measures output from a pipe to hostd's memory, in MB/s.
func BenchmarkOutput(b *testing.B) {
	for _, bm := range []struct {
		name, script string
		size         int
	}{
		{"bulk", "head -c 1073741824 /dev/zero", 1 << 30},
		{"blocks", "dd if=/dev/zero bs=64k count=8192 2>/dev/null", 512 << 20},
		{"lines", "yes 'a line of output as programs write it, of some length' | head -c 536870912", 512 << 20},
	} {
		b.Run(bm.name, func(b *testing.B) {
			var pool link.Pool
			c := attached(b, &pool)
			b.SetBytes(int64(bm.size))
			var events int
			for i := 0; b.Loop(); i++ {
				token := start(c, uint64(i+1), process.Spec{Cmd: "/bin/sh", Args: []string{"-c", bm.script}})
				var size int
				if size, events = drain(b, c, &pool, token, false); size != bm.size {
					b.Fatalf("%d bytes", size)
				}
			}
			b.ReportMetric(float64(bm.size)/float64(events)/1024, "KiB/event")
		})
	}
}

// BenchmarkTrue measures from a start command to the last event of `true`.
func BenchmarkTrue(b *testing.B) {
	var pool link.Pool
	c := attached(b, &pool)
	for i := 0; b.Loop(); i++ {
		token := start(c, uint64(i+1), process.Spec{Cmd: "/bin/true"})
		drain(b, c, &pool, token, false)
	}
}

// BenchmarkEcho measures from a keystroke to its echo by the terminal.
func BenchmarkEcho(b *testing.B) {
	var pool link.Pool
	c := attached(b, &pool)
	token := start(c, 1, process.Spec{Cmd: "cat", PTY: &process.Size{Cols: 80, Rows: 24}})
	rev := uint64(1)
	for b.Loop() {
		rev++
		c.Send(func(dst []byte) []byte {
			return wire.AppendStdin(dst, &wire.Stdin{Rev: rev, Token: token, Command: fmt.Sprint(rev), Data: []byte("x")})
		})
		for echoed := false; !echoed; {
			m, err := c.Next()
			if err != nil {
				b.Fatal(err)
			}
			if m.Type != wire.TypeEvent {
				continue
			}
			_, echoed = m.Event.Body.(process.Wrote)
			seq := m.Event.Seq
			c.Send(func(dst []byte) []byte { return wire.AppendMark(dst, wire.TypeAck, wire.Mark{Token: token, Seq: seq}) })
		}
	}
}
