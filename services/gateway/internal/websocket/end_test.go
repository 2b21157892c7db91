package websocket_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/gateway/internal/stream"
	"github.com/millrace/millrace/services/gateway/internal/websocket"
	"github.com/millrace/millrace/services/gateway/internal/websocket/websockettest"
)

func TestACloseFrameIsAnswered(t *testing.T) {
	for _, tt := range []struct {
		name  string
		frame []byte
		code  int
	}{
		{"normal", closing(1000, "done"), 1000},
		{"going away", closing(1001, ""), 1001},
		{"a protocol's own", closing(4711, ""), 4711},
		{"without a code", part(websockettest.Final|websockettest.Close, ""), 1005},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := serve(t, stream.Config{}, websocket.Options{}, echoes)
			c := f.raw(t, text("x"), tt.frame, text("after"))
			c.want(t, websockettest.Text, "x")
			c.wantClose(t, tt.code, "")
			if err := f.ended(t); !errors.Is(err, io.EOF) {
				t.Errorf("the handler got %v, want EOF", err)
			}
			f.wantEnded(t, "client", 1)
		})
	}
}

func TestAClientThatLeaves(t *testing.T) {
	for _, tt := range []struct {
		name  string
		leave func(c *rawClient) error
	}{
		{"FIN", func(c *rawClient) error { return c.Close() }},
		{"RST", func(c *rawClient) error { return errors.Join(c.SetLinger(0), c.Close()) }},
		{"within a frame", func(c *rawClient) error {
			_, err := c.Write(text("half")[:5])
			return errors.Join(err, c.CloseWrite())
		}},
		{"within a message", func(c *rawClient) error {
			_, err := c.Write(part(websockettest.Text, "half"))
			return errors.Join(err, c.CloseWrite())
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			over := make(chan error, 1)
			f := serve(t, stream.Config{}, websocket.Options{}, websocket.Handler{Serve: func(ctx context.Context, c *websocket.Conn) error {
				err := echo(ctx, c)
				over <- context.Cause(ctx)
				return err
			}})
			c := f.raw(t)
			if err := tt.leave(c); err != nil {
				t.Fatal(err)
			}
			if err := f.ended(t); !kind.Is(err, kind.Canceled) {
				t.Errorf("the handler got %v, want Canceled", err)
			}
			if err := <-over; !kind.Is(err, kind.Canceled) {
				t.Errorf("its context ended with %v, want Canceled", err)
			}
			f.wantEnded(t, "client", 1)
		})
	}
}

func TestTheHandlersResultClosesTheConnection(t *testing.T) {
	for _, tt := range []struct {
		name   string
		result error
		code   int
		reason string
	}{
		{"no error", nil, 1000, ""},
		{"an error for the client", kind.New(kind.NotFound, "find", "", "the sandbox does not exist"), 1008, "the sandbox does not exist"},
		{"temporary", kind.New(kind.Unavailable, "read", "", "try again"), 1013, "try again"},
		{"internal", errors.New("secret"), 1011, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := serve(t, stream.Config{}, websocket.Options{}, websocket.Handler{Serve: func(_ context.Context, c *websocket.Conn) error {
				return errors.Join(c.Write(websocket.Text, []byte("bye")), tt.result)
			}})
			c := f.raw(t)
			c.want(t, websockettest.Text, "bye")
			c.wantClose(t, tt.code, tt.reason)
		})
	}
}

func TestAPanicSendsNoText(t *testing.T) {
	var log lockedBuffer
	f := serve(t, stream.Config{Log: logger(&log)}, websocket.Options{}, websocket.Handler{Serve: func(context.Context, *websocket.Conn) error { panic("secret word") }})
	c := f.raw(t)
	c.wantClose(t, 1011, "")
	c.Close()
	f.wantEnded(t, "fault", 1)
	if got := log.String(); !strings.Contains(got, "secret word") || !strings.Contains(got, "websocket panicked") {
		t.Errorf("logged %q", got)
	}
}

// What the client is still sending does not reset the connection, which might discard the close
// frame.
func TestACloseFrameArrivesWhileTheClientSends(t *testing.T) {
	for _, tt := range []struct {
		name   string
		first  []byte
		code   int
		reason string
	}{{"after a violation", text("\xff"), 1007, "a text message is not UTF-8"}, {"at the end of the handler", text("bye"), 1000, ""}} {
		t.Run(tt.name, func(t *testing.T) {
			f := serve(t, stream.Config{}, websocket.Options{}, websocket.Handler{Serve: func(_ context.Context, c *websocket.Conn) error {
				m, err := c.Read()
				m.Release()
				return err
			}})
			c := f.raw(t)
			c.write(t, tt.first)
			c.wantClose(t, tt.code, tt.reason)
			more := text(long(50 << 10))
			for range 200 {
				c.write(t, more) // fails after a reset
			}
		})
	}
}

// lockedBuffer may be used concurrently.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func TestClose(t *testing.T) {
	reason := strings.Repeat("ä", 70)
	after := make(chan error, 3)
	f := serve(t, stream.Config{}, websocket.Options{}, websocket.Handler{Serve: func(ctx context.Context, c *websocket.Conn) error {
		c.Close(3001, reason)
		after <- c.Write(websocket.Text, []byte("x"))
		c.Close(websocket.Normal, "again")
		_, err := c.Read()
		after <- err
		<-ctx.Done()
		return nil
	}})
	c := f.raw(t, text("unread"))
	c.wantClose(t, 3001, reason[:122])
	c.write(t, slices.Concat(text("unread too"), closing(3001, "")))
	if err := f.ended(t); err != nil {
		t.Fatal(err)
	}
	if err := <-after; err == nil {
		t.Error("a message was sent after the close frame")
	}
	if err := <-after; !kind.Is(err, kind.Canceled) {
		t.Errorf("Read after Close: %v, want Canceled", err)
	}
	f.wantEnded(t, "server", 1)
}

// A client that does not close the connection after a close frame is disconnected.
func TestCloseDoesNotWaitForTheClient(t *testing.T) {
	for _, reads := range []bool{true, false} {
		f := serve(t, stream.Config{}, websocket.Options{CloseTimeout: time.Second}, websocket.Handler{Serve: func(_ context.Context, c *websocket.Conn) error {
			c.Close(websocket.Normal, "")
			if reads {
				return c.Discard()
			}
			return nil
		}})
		c := f.raw(t, text("a"), part(websockettest.Text, "b"))
		c.want(t, websockettest.Close, "\x03\xe8")
		f.wantEnded(t, "server", 1)
		if !eventually(func() bool { return f.server.Open() == 0 && f.streams.Open() == 0 }) {
			t.Errorf("reads %v: the connection is still open", reads)
		}
	}
}

func TestAClientThatAnswersNoPingIsDisconnected(t *testing.T) {
	f := serve(t, stream.Config{}, websocket.Options{PingInterval: 20 * time.Millisecond, PongTimeout: 10 * time.Millisecond}, echoes)
	c := f.raw(t)
	c.want(t, websockettest.Ping, "")
	if err := f.ended(t); !kind.Is(err, kind.Canceled) || kind.Message(err) != "the client answered no ping" {
		t.Errorf("the handler got %v", err)
	}
	if f, err := websockettest.Read(c.r); err == nil {
		t.Errorf("got opcode %d, want the end", f.Op)
	}
	f.wantEnded(t, "no_pong", 1)
}

func TestAClientThatAnswersPingsStaysConnected(t *testing.T) {
	f := serve(t, stream.Config{}, websocket.Options{PingInterval: 20 * time.Millisecond, PongTimeout: patience}, echoes)
	c := f.raw(t)
	for range 5 {
		c.want(t, websockettest.Ping, "")
		c.write(t, part(websockettest.Final|websockettest.Pong, ""))
	}
	c.write(t, text("x"))
	for {
		if got := c.frame(t); got.Op != websockettest.Ping {
			if string(got.Payload) != "x" {
				t.Errorf("got %+v", got)
			}
			break
		}
	}
}

// The pong of a client may wait behind messages that the handler does not read yet.
func TestABusyHandlerDoesNotDisconnectItsClient(t *testing.T) {
	proceed := make(chan struct{})
	f := serve(t, stream.Config{}, websocket.Options{PingInterval: 20 * time.Millisecond, PongTimeout: time.Second}, websocket.Handler{Serve: func(ctx context.Context, c *websocket.Conn) error {
		<-proceed
		m, err := c.Read()
		if err == nil {
			c.Close(websocket.Normal, string(m.Data))
			m.Release()
		}
		return err
	}})
	c := f.raw(t, text("x"))
	for range 100 { // takes longer than the timeout
		c.want(t, websockettest.Ping, "")
	}
	close(proceed)
	for {
		if got := c.frame(t); got.Op != websockettest.Ping {
			if got.Op != websockettest.Close || got.Reason() != "x" {
				t.Errorf("got %+v", got)
			}
			break
		}
	}
}

func TestDrain(t *testing.T) {
	bye := func(c *websocket.Conn) {
		c.Write(websocket.Text, []byte(`{"status":"server-restarting"}`))
		c.Close(4000, "restart")
	}
	for _, tt := range []struct {
		name   string
		drain  func(*websocket.Conn)
		serve  func(context.Context, *websocket.Conn) error
		words  string
		code   int
		reason string
	}{
		{"by default", nil, echo, "", 1001, "the gateway is shutting down; reconnect"},
		{"in the protocol's words", bye, echo, `{"status":"server-restarting"}`, 4000, "restart"},
		{"by the handler", websocket.LeaveToServe, func(ctx context.Context, c *websocket.Conn) error {
			<-ctx.Done()
			return c.Write(websocket.Text, []byte(kind.Of(context.Cause(ctx)).String()))
		}, "unavailable", 1001, "the gateway is shutting down; reconnect"},
		{"by a callback that panics", func(c *websocket.Conn) {
			defer c.Close(websocket.Fault, "")
			panic("secret")
		}, echo, "", 1011, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			const n = 10
			f := serve(t, stream.Config{}, websocket.Options{}, websocket.Handler{Drain: tt.drain, Serve: func(ctx context.Context, c *websocket.Conn) error {
				c.Write(websocket.Text, []byte("hello"))
				return tt.serve(ctx, c)
			}})
			clients := make([]*rawClient, n)
			for i := range clients {
				clients[i] = f.raw(t)
				clients[i].want(t, websockettest.Text, "hello")
			}
			if got := [2]int{f.server.Open(), f.streams.Open()}; got != [2]int{n, n} {
				t.Errorf("open connections and streams: %v", got)
			}
			done := make(chan error, 1)
			go func() { done <- f.streams.Drain(t.Context()) }()
			for _, c := range clients {
				if tt.words != "" {
					c.want(t, websockettest.Text, tt.words)
				}
				c.wantClose(t, tt.code, tt.reason)
				c.Close()
			}
			if err := <-done; err != nil {
				t.Errorf("Drain: %v", err)
			}
			if got := [2]int{f.server.Open(), f.streams.Open()}; got != [2]int{} {
				t.Errorf("open connections and streams after Drain: %v", got)
			}
			f.wantEnded(t, "drain", n)
		})
	}
}

// A client that reads nothing does not delay a drain beyond its deadline.
func TestDrainDisconnectsAStalledReader(t *testing.T) {
	f := serve(t, stream.Config{WriteTimeout: patience}, websocket.Options{}, websocket.Handler{Serve: func(_ context.Context, c *websocket.Conn) error {
		go c.Discard()
		for {
			if err := c.Write(websocket.Binary, make([]byte, 1<<20)); err != nil {
				return err
			}
		}
	}})
	c := f.raw(t)
	if _, err := c.r.Peek(1); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := f.streams.Drain(ctx); err != nil && !kind.Is(err, kind.Deadline) {
		t.Errorf("Drain: %v, want a deadline", err)
	}
	f.ended(t)
}
