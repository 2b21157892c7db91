package stream_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/httpconn"
	"github.com/millrace/millrace/services/gateway/internal/stream"
	"github.com/millrace/millrace/services/gateway/internal/surfacetest"
)

// server serves every POST with serve on a loopback port.
type server struct {
	addr    string
	streams *stream.Streams
	closed  chan process.Seq // receives the last seq of each Source that is closed
}

// closeReporter reports when it is closed.
type closeReporter struct {
	stream.Source
	closed chan process.Seq
}

func (n *closeReporter) Close() {
	n.Source.Close()
	n.closed <- n.After()
}

func serve(t testing.TB, cfg stream.Config, keep bool, head stream.Head, open func(c *fiber.Ctx) (stream.Source, stream.Encoder)) *server {
	t.Helper()
	var s *server
	s = serveBy(t, cfg, keep, func(c *fiber.Ctx) error {
		src, enc := open(c)
		return s.streams.Serve(c, head, &closeReporter{src, s.closed}, enc)
	})
	return s
}

// serveBy is serve with a handler.
func serveBy(t testing.TB, cfg stream.Config, keep bool, do fiber.Handler) *server {
	t.Helper()
	s := &server{streams: stream.New(cfg), closed: make(chan process.Seq, 1000)}
	app := fiber.New(fiber.Config{DisableStartupMessage: true, ReadBufferSize: readBuffer, ReduceMemoryUsage: true, StreamRequestBody: true})
	app.Use(func(c *fiber.Ctx) error {
		c.Set("X-Middleware", "yes")
		return c.Next()
	})
	app.Post("/", do)
	app.Get("/", func(c *fiber.Ctx) error { return c.SendString("plain") })
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if s.addr = ln.Addr().String(); keep {
		ln = httpconn.Listen(ln)
	}
	done := make(chan error, 1)
	go func() { done <- app.Listener(ln) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := s.streams.Drain(ctx); err != nil {
			t.Errorf("Drain: %v", err)
		}
		if err := app.ShutdownWithTimeout(time.Minute); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		<-done
	})
	return s
}

func (s *server) dial(t testing.TB) (net.Conn, *bufio.Reader) {
	t.Helper()
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(time.Minute))
	return c, bufio.NewReader(c)
}

// ask writes a raw request and reads the whole response.
func ask(t testing.TB, c net.Conn, r *bufio.Reader, request string) (*http.Response, string) {
	t.Helper()
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	return answer(t, r)
}

func answer(t testing.TB, r *bufio.Reader) (*http.Response, string) {
	t.Helper()
	res, err := http.ReadResponse(r, &http.Request{Method: http.MethodPost})
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("after %q: %v", body, err)
	}
	return res, string(body)
}

const readBuffer = 64 << 10 // of the server, as the gateway's

const post = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi"

func done(*fiber.Ctx) (stream.Source, stream.Encoder) {
	return script(surfacetest.Out("hello"), surfacetest.Code(0)).Source(0), &words{}
}

const whole = "<accepted><start>hello<end>[end]"

// silent opens a stream that yields "<accepted><start>" and then nothing.
func silent(*fiber.Ctx) (stream.Source, stream.Encoder) {
	src := script(surfacetest.Code(0)).Source(0)
	src.Hold = 2
	return src, &words{}
}

func TestServeReturnsTheConnection(t *testing.T) {
	s := serve(t, stream.Config{}, true, stream.Head{ContentType: "text/words", Headers: [][2]string{{"X-Own", "a\r\nb: c"}}}, done)
	c, r := s.dial(t)
	for i := range 50 {
		res, body := ask(t, c, r, post)
		if body != whole {
			t.Fatalf("answer %d is %q, want %q", i, body, whole)
		}
		if res.Header.Get("Content-Type") != "text/words" || res.Header.Get("X-Middleware") != "yes" || res.Header.Get("X-Own") != "a  b: c" || res.Close {
			t.Fatalf("head %v", res.Header)
		}
		if _, body := ask(t, c, r, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); body != "plain" {
			t.Fatalf("after stream %d: %q", i, body)
		}
		if at := <-s.closed; at != 4 {
			t.Fatalf("source closed at %d, want 4", at)
		}
	}
}

// A stream must not cost the server its read buffer. (Under the race detector,
// pools drop some of their items.)
func TestServeReturnsTheReadBuffer(t *testing.T) {
	s := serve(t, stream.Config{}, true, stream.Head{}, done)
	c, r := s.dial(t)
	const n = 200
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range n {
		ask(t, c, r, post)
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / n; each > readBuffer*3/4 {
		t.Errorf("a stream takes %d bytes, want fewer than a buffer's %d", each, readBuffer)
	}
}

func TestServeHandlesPipelinedRequests(t *testing.T) {
	s := serve(t, stream.Config{}, true, stream.Head{}, done)
	c, r := s.dial(t)
	const n = 100
	if _, err := io.WriteString(c, strings.Repeat(post+"GET / HTTP/1.1\r\nHost: x\r\n\r\n", n)); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if _, body := answer(t, r); body != whole {
			t.Fatalf("answer %d is %q", i, body)
		}
		if _, body := answer(t, r); body != "plain" {
			t.Fatalf("answer %d is %q", i, body)
		}
	}
}

func TestServeClosesConnectionsThatCannotBeReused(t *testing.T) {
	for _, tt := range []struct {
		name    string
		keep    bool
		request string
	}{
		{"a connection that is not from Listen", false, post},
		{"the client sends Connection: close", true, strings.Replace(post, "Host", "Connection: close\r\nHost", 1)},
		{"HTTP/1.0", true, strings.Replace(post, "1.1", "1.0", 1)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := serve(t, stream.Config{}, tt.keep, stream.Head{}, done)
			c, r := s.dial(t)
			res, body := ask(t, c, r, tt.request)
			if body != whole || !res.Close {
				t.Errorf("got %q, close %v; want %q, true", body, res.Close, whole)
			}
			if n, err := r.Read(make([]byte, 1)); err != io.EOF {
				t.Errorf("after the end: %d bytes, %v; want EOF", n, err)
			}
		})
	}
}

func TestServeHTTP10IsNotChunked(t *testing.T) {
	s := serve(t, stream.Config{}, true, stream.Head{}, done)
	c, _ := s.dial(t)
	if _, err := io.WriteString(c, strings.Replace(post, "1.1", "1.0", 1)); err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(c)
	if err != nil || !strings.HasSuffix(string(raw), "\r\n\r\n"+whole) || strings.Contains(string(raw), "chunked") {
		t.Errorf("got %q, %v", raw, err)
	}
}

func TestServeDetectsADisconnect(t *testing.T) {
	for _, tt := range []struct {
		name  string
		leave func(c *net.TCPConn) error
	}{
		{"FIN", func(c *net.TCPConn) error { return c.Close() }},
		{"RST", func(c *net.TCPConn) error {
			if err := c.SetLinger(0); err != nil {
				return err
			}
			return c.Close()
		}},
		{"a half close", func(c *net.TCPConn) error { return c.CloseWrite() }},
		{"a byte, then FIN", func(c *net.TCPConn) error {
			_, err := io.WriteString(c, "G")
			return errors.Join(err, c.Close())
		}},
		{"more than the read limit", func(c *net.TCPConn) error {
			_, err := io.WriteString(c, strings.Repeat("x", 256<<10))
			return err
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := serve(t, stream.Config{}, true, stream.Head{}, silent)
			c, r := s.dial(t)
			if _, err := io.WriteString(c, post); err != nil {
				t.Fatal(err)
			}
			if _, err := r.ReadString('>'); err != nil {
				t.Fatal(err)
			}
			if err := tt.leave(c.(*net.TCPConn)); err != nil {
				t.Fatal(err)
			}
			select {
			case <-s.closed:
			case <-time.After(time.Minute):
				t.Error("the stream continues")
			}
		})
	}
}

// Data sent after a request is processed when its stream ends, in one piece or in several.
func TestServeProcessesDataSentDuringTheStream(t *testing.T) {
	gate := make(chan struct{})
	s := serve(t, stream.Config{}, true, stream.Head{}, func(*fiber.Ctx) (stream.Source, stream.Encoder) {
		return &gated{script(surfacetest.Code(0)).Source(0), gate}, &words{}
	})
	c, r := s.dial(t)
	next := "GET / HTTP/1.1\r\nHost: x\r\nX-Long: " + strings.Repeat("y", 10<<10) + "\r\n\r\n"
	for _, part := range []string{post, next[:1], next[1:5000], next[5000:]} {
		if _, err := io.WriteString(c, part); err != nil {
			t.Fatal(err)
		}
	}
	close(gate)
	if _, body := answer(t, r); body != "<accepted><start><end>[end]" {
		t.Errorf("the stream is %q", body)
	}
	if _, body := answer(t, r); body != "plain" {
		t.Errorf("the request sent during the stream: %q", body)
	}
}

// gated yields nothing until its gate is open.
type gated struct {
	stream.Source
	gate chan struct{}
}

func (g *gated) Next(ctx context.Context, idle time.Duration) ([]process.Event, error) {
	select {
	case <-g.gate:
		return g.Source.Next(ctx, idle)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func TestServeDropsOnlyTheStalledReader(t *testing.T) {
	flood := func(*fiber.Ctx) (stream.Source, stream.Encoder) {
		big := surfacetest.Out(strings.Repeat("x", 256<<10))
		src := script(append(slices.Repeat([]process.Body{big}, 100), surfacetest.Code(0))...).Source(0)
		src.Batch = 1
		return src, &words{}
	}
	s := serve(t, stream.Config{WriteTimeout: 3 * time.Second}, true, stream.Head{}, flood)
	stuck, _ := s.dial(t)
	if _, err := io.WriteString(stuck, post); err != nil {
		t.Fatal(err)
	}
	fast, r := s.dial(t)
	if _, body := ask(t, fast, r, post); len(body) < 25<<20 {
		t.Errorf("the fast reader got %d bytes", len(body))
	}
	if at := min(<-s.closed, <-s.closed); at >= 103 {
		t.Errorf("the stalled reader's record was read up to event %d", at)
	}
}

func TestServeWaitsForASlowReader(t *testing.T) {
	const size = 24 << 20
	s := serve(t, stream.Config{WriteTimeout: 2 * time.Second}, true, stream.Head{}, func(*fiber.Ctx) (stream.Source, stream.Encoder) {
		return script(surfacetest.Out(strings.Repeat("x", size)), surfacetest.Code(0)).Source(0), &words{}
	})
	c, _ := s.dial(t)
	if _, err := io.WriteString(c, strings.Replace(post, "Host", "Connection: close\r\nHost", 1)); err != nil {
		t.Fatal(err)
	}
	// One flush, which takes twice the write timeout.
	buf, got := make([]byte, size/32), 0
	for tick := time.NewTicker(125 * time.Millisecond); ; <-tick.C {
		n, err := io.ReadFull(c, buf)
		if got += n; err != nil {
			break
		}
	}
	if got < size {
		t.Errorf("the slow reader got %d bytes of %d", got, size)
	}
}

func TestServeSurvivesAPanic(t *testing.T) {
	s := serve(t, stream.Config{}, true, stream.Head{}, func(*fiber.Ctx) (stream.Source, stream.Encoder) {
		return script(surfacetest.Out("a"), surfacetest.Code(0)).Source(0), &words{panics: 3}
	})
	c, r := s.dial(t)
	if _, err := io.WriteString(c, post); err != nil {
		t.Fatal(err)
	}
	if raw, err := io.ReadAll(r); err != nil || strings.Contains(string(raw), "0\r\n\r\n") {
		t.Errorf("got %q, %v; want a truncated response", raw, err)
	}
	<-s.closed
}

func TestServeEndsWhenTheRequestTimesOut(t *testing.T) {
	s := serve(t, stream.Config{}, true, stream.Head{Timeout: time.Second}, silent)
	c, r := s.dial(t)
	for range 3 {
		if _, body := ask(t, c, r, post); body != "<accepted><start>[deadline]" {
			t.Errorf("got %q", body)
		}
	}
}

func TestDrainEndsAllStreams(t *testing.T) {
	s := serve(t, stream.Config{}, true, stream.Head{}, silent)
	const n = 20
	readers := make([]*bufio.Reader, n)
	for i := range readers {
		c, r := s.dial(t)
		readers[i] = r
		if _, err := io.WriteString(c, post); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Peek(1); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.streams.Open(); got != n {
		t.Errorf("%d streams are open, want %d", got, n)
	}
	if err := s.streams.Drain(t.Context()); err != nil {
		t.Errorf("Drain: %v", err)
	}
	for i, r := range readers {
		if _, body := answer(t, r); body != "<accepted><start>[unavailable]" {
			t.Errorf("stream %d got %q", i, body)
		}
	}
	c, r := s.dial(t)
	if res, body := ask(t, c, r, post); body != "[unavailable]" || !res.Close {
		t.Errorf("a stream after Drain got %q, close %v", body, res.Close)
	}
	if got := s.streams.Open(); got != 0 {
		t.Errorf("%d streams are open, want none", got)
	}
}

func TestDrainClosesIdleConnections(t *testing.T) {
	s := serve(t, stream.Config{}, true, stream.Head{}, done)
	c, r := s.dial(t)
	ask(t, c, r, post)
	<-s.closed
	if err := s.streams.Drain(t.Context()); err != nil {
		t.Errorf("Drain: %v", err)
	}
	if _, err := r.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("got %v, want EOF", err)
	}
}

func TestDrainDisconnectsAStalledReader(t *testing.T) {
	forever := func(*fiber.Ctx) (stream.Source, stream.Encoder) { return endless{}, &words{} }
	s := serve(t, stream.Config{WriteTimeout: time.Minute}, true, stream.Head{}, forever)
	c, r := s.dial(t)
	if _, err := io.WriteString(c, post); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Peek(1); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := s.streams.Drain(ctx); err != nil && !kind.Is(err, kind.Deadline) {
		t.Errorf("Drain: %v, want a deadline", err)
	}
	<-s.closed
}

// endless is a Source without an end.
type endless struct{}

func (endless) Next(ctx context.Context, _ time.Duration) ([]process.Event, error) {
	return []process.Event{{Seq: 3, Body: surfacetest.Out(strings.Repeat("x", 64<<10))}}, ctx.Err()
}
func (endless) After() process.Seq { return 3 }
func (endless) Close()             {}

func TestIdleConnectionsAreClosedAfterTheTimeout(t *testing.T) {
	s := serve(t, stream.Config{IdleTimeout: time.Second}, true, stream.Head{}, done)
	c, r := s.dial(t)
	ask(t, c, r, post)
	if b, err := r.ReadByte(); err != io.EOF {
		t.Errorf("got %s, %v; want EOF without data", fmt.Sprint(b), err)
	}
}
