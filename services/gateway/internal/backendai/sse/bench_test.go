package sse

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"runtime"
	"strings"
	"testing"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/services/gateway/internal/stream"
	"github.com/millrace/millrace/services/gateway/internal/textenc"
)

// BenchmarkListeners measures the memory of a quiet listener, and the time in which one event
// reaches a thousand of them.
func BenchmarkListeners(b *testing.B) {
	const n = 1000
	l := &stored{}
	h, streams := NewHub(l), stream.New(stream.Config{})
	app := fiber.New(fiber.Config{DisableStartupMessage: true, ReduceMemoryUsage: true})
	app.Get("/", func(c *fiber.Ctx) error {
		return streams.Serve(c, stream.Head{ContentType: textenc.ContentTypeSSE}, h.Listen("a", h.Now(), nil, every), NewEncoder())
	})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	go app.Listener(ln)
	defer app.Shutdown()
	before := inUse()
	conns := make([]net.Conn, n)
	for i := range conns {
		if conns[i], err = net.Dial("tcp", ln.Addr().String()); err != nil {
			b.Fatal(err)
		}
		defer conns[i].Close()
		fmt.Fprint(conns[i], "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	}
	head := make([]byte, 512)
	for _, c := range conns {
		if m, err := c.Read(head); err != nil || !strings.Contains(string(head[:m]), "200 OK") {
			b.Fatalf("%q, %v", head[:m], err)
		}
	}
	each := float64(inUse()-before) / n / 1024
	if each > 40 {
		b.Errorf("%.1f KiB for each listener, want at most 40", each)
	}
	readers := make([]*bufio.Reader, n)
	for i, c := range conns {
		readers[i] = bufio.NewReaderSize(c, 512)
	}
	for b.Loop() {
		rev := l.SandboxesRev()
		l.add("a")
		l.deliver(h, rev, func() {})
		for _, r := range readers {
			for {
				line, err := r.ReadString('\n')
				if err != nil {
					b.Fatal(err)
				}
				if line == "event: session_started\n" {
					break
				}
			}
		}
	}
	b.ReportMetric(each, "KiB/listener")
	streams.Drain(context.Background())
}

// inUse returns the bytes of the heap and of stacks in use.
func inUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}
