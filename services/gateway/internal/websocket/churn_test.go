package websocket_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"sync"
	"testing"
	"time"

	fws "github.com/gofiber/contrib/websocket"
	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/services/gateway/internal/httpconn"
	"github.com/millrace/millrace/services/gateway/internal/stream"
	"github.com/millrace/millrace/services/gateway/internal/websocket"
	"github.com/millrace/millrace/services/gateway/internal/websocket/websockettest"
)

// Connections that end in any way leave no goroutine and no registered stream.
func TestTenThousandConnectionsLeaveNothing(t *testing.T) {
	const clients = 16
	n := 10_000
	if testing.Short() {
		n = 1000
	}
	f := serve(t, stream.Config{}, websocket.Options{}, echoes)
	f.raw(t).Close()
	f.ended(t)
	before := runtime.NumGoroutine()
	leave := []func(c *rawClient) error{
		func(c *rawClient) error { return c.TCPConn.Close() },
		func(c *rawClient) error { return errors.Join(c.SetLinger(0), c.TCPConn.Close()) },
		func(c *rawClient) error { // in order
			if _, err := c.TCPConn.Write(closing(1000, "")); err != nil {
				return err
			}
			_, err := io.Copy(io.Discard, c.r)
			return errors.Join(err, c.TCPConn.Close())
		},
		func(c *rawClient) error { // by a violation
			if _, err := c.TCPConn.Write(part(0xf0, "x")); err != nil {
				return err
			}
			_, err := io.Copy(io.Discard, c.r)
			return errors.Join(err, c.TCPConn.Close())
		},
		func(c *rawClient) error { // within a message
			_, err := c.TCPConn.Write(part(websockettest.Text, "x")[:4])
			return errors.Join(err, c.TCPConn.Close())
		},
	}
	var g sync.WaitGroup
	for w := range clients {
		g.Go(func() {
			for i := w; i < n; i += clients {
				if err := f.visit(leave[i%len(leave)]); err != nil {
					t.Errorf("connection %d: %v", i, err)
					return
				}
			}
		})
	}
	g.Wait()
	for range n {
		f.ended(t)
	}
	if !eventually(func() bool { return f.streams.Open() == 0 && f.server.Open() == 0 }) {
		t.Errorf("%d streams and %d connections are open", f.streams.Open(), f.server.Open())
	}
	// The HTTP server keeps idle workers for a while, at most one per client.
	if !eventually(func() bool { return runtime.NumGoroutine() <= before+2*clients }) {
		var b bytes.Buffer
		stack := make([]byte, 1<<20)
		b.Write(stack[:runtime.Stack(stack, true)])
		t.Errorf("%d goroutines, before %d:\n%.20000s", runtime.NumGoroutine(), before, &b)
	}
	total := uint64(0)
	f.server.Ended(func(_ string, n uint64) { total += n })
	if total != uint64(n)+1 {
		t.Errorf("%d connections ended, want %d", total, n+1)
	}
}

// visit connects, exchanges a message and leaves.
func (f *fixture) visit(leave func(*rawClient) error) error {
	conn, err := net.Dial("tcp", f.addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	c := newRawClient(conn)
	if _, err := conn.Write(append([]byte(upgrade), text("hello")...)); err != nil {
		return err
	}
	res, err := http.ReadResponse(c.r, nil)
	if err != nil {
		return err
	}
	if m, err := websockettest.Read(c.r); err != nil || string(m.Payload) != "hello" {
		return fmt.Errorf("%s, got %+v, %w", res.Status, m, err)
	}
	return leave(c)
}

// hold opens b.N connections to addr and reports the memory of each. The client's half is a bare
// socket.
func hold(b *testing.B, addr string) {
	b.Helper()
	answer := make([]byte, 4096)
	conns := make([]net.Conn, b.N)
	frame := text("x")
	before := memory()
	for i := range conns {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			b.Fatal(err)
		}
		conns[i] = c
		if _, err := c.Write(append([]byte(upgrade), frame...)); err != nil {
			b.Fatal(err)
		}
		for got := 0; !bytes.HasSuffix(answer[:got], []byte{0x81, 1, 'x'}); {
			n, err := c.Read(answer[got:])
			if err != nil {
				b.Fatal(err)
			}
			got += n
		}
	}
	b.ReportMetric(float64(memory()-before)/float64(b.N), "B/conn")
	b.StopTimer()
	for _, c := range conns {
		c.Close()
	}
}

// memory returns the memory in use for the heap and for stacks after a collection.
func memory() uint64 {
	for range 3 { // also what pools hold
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

// Memory of a held connection: through this package, and in the gateway's app directly. Run it
// with -benchtime=2000x.
func BenchmarkHeldConnection(b *testing.B) {
	b.Run("handed over", func(b *testing.B) {
		f := serve(b, stream.Config{}, websocket.Options{}, echoes)
		hold(b, f.addr)
	})
	b.Run("in the gateway's app", func(b *testing.B) {
		app := fiber.New(fiber.Config{DisableStartupMessage: true, ReadBufferSize: 64 << 10, ReduceMemoryUsage: true, StreamRequestBody: true})
		app.Get("/", fws.New(func(c *fws.Conn) {
			for {
				t, m, err := c.ReadMessage()
				if err != nil || c.WriteMessage(t, m) != nil {
					return
				}
			}
		}))
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- app.Listener(httpconn.Listen(ln)) }()
		hold(b, ln.Addr().String())
		app.ShutdownWithTimeout(patience)
		<-done
	})
}

func BenchmarkEcho(b *testing.B) {
	f := serve(b, stream.Config{}, websocket.Options{}, echoes)
	c := f.raw(b)
	m := text("0123456789abcdef")
	b.ReportAllocs()
	for b.Loop() {
		c.write(b, m)
		if _, err := websockettest.Read(c.r); err != nil {
			b.Fatal(err)
		}
	}
}

// Output of a process in messages of 64 KiB.
func BenchmarkSend(b *testing.B) {
	const size = 64 << 10
	stop := make(chan struct{})
	f := serve(b, stream.Config{}, websocket.Options{}, websocket.Handler{Serve: func(_ context.Context, c *websocket.Conn) error {
		buf := websocket.AppendMessage(make([]byte, stream.Headroom), websocket.Binary, make([]byte, size))
		for {
			select {
			case <-stop:
				return nil
			default:
			}
			if err := c.Flush(buf); err != nil {
				return err
			}
		}
	}})
	c := f.raw(b)
	buf := make([]byte, size+10)
	b.SetBytes(size)
	for b.Loop() {
		if _, err := io.ReadFull(c.r, buf); err != nil {
			b.Fatal(err)
		}
	}
	close(stop)
	c.Close()
}
