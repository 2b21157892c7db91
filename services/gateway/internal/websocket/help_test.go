package websocket_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	client "github.com/fasthttp/websocket"
	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/services/gateway/internal/httpconn"
	"github.com/millrace/millrace/services/gateway/internal/stream"
	"github.com/millrace/millrace/services/gateway/internal/websocket"
	"github.com/millrace/millrace/services/gateway/internal/websocket/websockettest"
)

// patience is how long a test waits for what must happen.
const patience = 30 * time.Second

// fixture serves an endpoint at / on loopback.
type fixture struct {
	addr    string
	streams *stream.Streams
	server  *websocket.Server
	result  chan error // results of handlers
}

const tenant = "t1"

// serve serves an endpoint with handler h until the test ends. The results of h are sent to the
// fixture.
func serve(t testing.TB, cfg stream.Config, o websocket.Options, h websocket.Handler) *fixture {
	t.Helper()
	f := newFixture(cfg)
	do := h.Serve
	h.Serve = func(ctx context.Context, c *websocket.Conn) error {
		err := do(ctx, c)
		f.result <- err
		return err
	}
	f.listen(t, o, h, true)
	return f
}

func newFixture(cfg stream.Config) *fixture {
	f := &fixture{streams: stream.New(cfg), result: make(chan error, 20_000)}
	f.server = websocket.New(f.streams)
	return f
}

func (f *fixture) listen(t testing.TB, o websocket.Options, h websocket.Handler, keep bool) {
	t.Helper()
	e := f.server.Endpoint(o)
	app := fiber.New(fiber.Config{DisableStartupMessage: true, ReadBufferSize: 64 << 10, ReduceMemoryUsage: true, StreamRequestBody: true})
	app.Server().NoDefaultServerHeader = true
	app.Use(func(c *fiber.Ctx) error {
		c.Set("X-Middleware", "yes")
		return c.Next()
	})
	app.All("/", func(c *fiber.Ctx) error { return e.Upgrade(c, tenant, h) })
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if f.addr = ln.Addr().String(); keep {
		ln = httpconn.Listen(ln)
	}
	done := make(chan error, 1)
	go func() { done <- app.Listener(ln) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := f.streams.Drain(ctx); err != nil {
			t.Errorf("Drain: %v", err)
		}
		if n := f.server.Open(); n != 0 {
			t.Errorf("%d connections are open after Drain", n)
		}
		if err := app.ShutdownWithTimeout(patience); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		<-done
	})
}

var echoes = websocket.Handler{Serve: echo}

// echo sends each message back.
func echo(_ context.Context, c *websocket.Conn) error {
	for {
		m, err := c.Read()
		if err != nil {
			return err
		}
		err = c.Write(m.Type, m.Data)
		m.Release()
		if err != nil {
			return err
		}
	}
}

// connect connects the library's client.
func (f *fixture) connect(t testing.TB, header http.Header) *client.Conn {
	t.Helper()
	c, res, err := client.DefaultDialer.Dial("ws://"+f.addr+"/", header)
	if err != nil {
		t.Fatalf("dial: %v, %+v", err, res)
	}
	res.Body.Close()
	t.Cleanup(func() { c.Close() })
	c.SetReadDeadline(time.Now().Add(patience))
	return c
}

// rawClient is a connection whose frames the test makes.
type rawClient struct {
	*net.TCPConn
	r *bufio.Reader
}

const upgrade = "GET / HTTP/1.1\r\nHost: api.example.com\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n" +
	"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"

// dial opens a TCP connection.
func (f *fixture) dial(t testing.TB) *rawClient {
	t.Helper()
	c, err := net.Dial("tcp", f.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	return newRawClient(c)
}

func newRawClient(c net.Conn) *rawClient { return &rawClient{c.(*net.TCPConn), bufio.NewReader(c)} }

// raw upgrades a connection, and sends frames in the segment of the request.
func (f *fixture) raw(t testing.TB, frames ...[]byte) *rawClient {
	t.Helper()
	c := f.dial(t)
	c.write(t, []byte(upgrade+string(join(frames))))
	c.accepted(t)
	return c
}

func join(frames [][]byte) (all []byte) {
	for _, f := range frames {
		all = append(all, f...)
	}
	return all
}

// accepted reads the response to the upgrade.
func (c *rawClient) accepted(t testing.TB) *http.Response {
	t.Helper()
	res, err := http.ReadResponse(c.r, nil)
	if err != nil {
		t.Fatal(err)
	}
	if res.StatusCode != http.StatusSwitchingProtocols || res.Header.Get("Sec-Websocket-Accept") != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" {
		t.Fatalf("%s, %v", res.Status, res.Header)
	}
	return res
}

func (c *rawClient) write(t testing.TB, b []byte) {
	t.Helper()
	if _, err := c.Write(b); err != nil {
		t.Fatal(err)
	}
}

// frame reads a frame.
func (c *rawClient) frame(t testing.TB) websockettest.Frame {
	t.Helper()
	f, err := websockettest.Read(c.r)
	if err != nil {
		t.Fatalf("read frame: %v", err)
	}
	return f
}

// want reads a frame and compares it.
func (c *rawClient) want(t testing.TB, op byte, payload string) {
	t.Helper()
	if f := c.frame(t); f.Op != op || string(f.Payload) != payload {
		t.Fatalf("got opcode %d, %.200q; want %d, %.200q", f.Op, f.Payload, op, payload)
	}
}

// wantClose reads a close frame and the end of the connection.
func (c *rawClient) wantClose(t testing.TB, code int, reason string) {
	t.Helper()
	f := c.frame(t)
	if f.Op != websockettest.Close || f.Code() != code || f.Reason() != reason {
		t.Errorf("got opcode %d, code %d, reason %q; want close %d, %q", f.Op, f.Code(), f.Reason(), code, reason)
	}
	c.wantEOF(t)
}

func (c *rawClient) wantEOF(t testing.TB) {
	t.Helper()
	if b, err := io.ReadAll(c.r); err != nil || len(b) > 0 {
		t.Errorf("after the close frame: %q, %v", b, err)
	}
}

// ended returns the result of a handler.
func (f *fixture) ended(t testing.TB) error {
	t.Helper()
	select {
	case err := <-f.result:
		return err
	case <-time.After(patience):
		t.Fatal("the handler does not return")
		return nil
	}
}

// wantEnded waits until connections have ended for a reason.
func (f *fixture) wantEnded(t testing.TB, reason string, want uint64) {
	t.Helper()
	var got map[string]uint64
	if !eventually(func() bool {
		got = make(map[string]uint64)
		f.server.Ended(func(r string, n uint64) { got[r] = n })
		return got[reason] >= want
	}) || got[reason] != want {
		t.Errorf("ended connections %v, want %s: %d", got, reason, want)
	}
}

// eventually waits until ok returns true, and reports whether it did.
func eventually(ok func() bool) bool {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); time.Now().Before(end); <-tick.C {
		if ok() {
			return true
		}
	}
	return ok()
}

// text makes a final text frame.
func text(s string) []byte {
	return websockettest.AppendClient(nil, websockettest.Final|websockettest.Text, []byte(s))
}

// part makes a frame.
func part(first byte, s string) []byte { return websockettest.AppendClient(nil, first, []byte(s)) }

func closing(code uint16, reason string) []byte {
	return part(websockettest.Final|websockettest.Close, string([]byte{byte(code >> 8), byte(code)})+reason)
}

// logBuffer collects a log.
func logger(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

func long(n int) string { return strings.Repeat("x", n) }
