package websocket_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	client "github.com/fasthttp/websocket"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/gateway/internal/stream"
	"github.com/millrace/millrace/services/gateway/internal/websocket"
	"github.com/millrace/millrace/services/gateway/internal/websocket/websockettest"
)

func TestMessagesOfEverySize(t *testing.T) {
	f := serve(t, stream.Config{}, websocket.Options{}, echoes)
	c := f.connect(t, nil)
	for _, n := range []int{0, 1, 125, 126, 511, 512, 513, 4096, 65535, 65536, 1 << 20, 16 << 20} {
		for _, typ := range []int{client.TextMessage, client.BinaryMessage} {
			if typ == client.TextMessage && n > 1<<20 {
				continue // slow under the race detector
			}
			if err := c.WriteMessage(typ, []byte(long(n))); err != nil {
				t.Fatal(err)
			}
			if got, b, err := c.ReadMessage(); err != nil || got != typ || len(b) != n || string(b) != long(n) {
				t.Fatalf("type %d, %d bytes: got type %d, %d bytes, %v", typ, n, got, len(b), err)
			}
		}
	}
}

// The server has read these frames together with the request.
func TestFramesBehindTheRequestAreNotLost(t *testing.T) {
	for _, keep := range []bool{true, false} {
		t.Run(fmt.Sprintf("keep %v", keep), func(t *testing.T) {
			f := newFixture(stream.Config{})
			f.listen(t, websocket.Options{}, echoes, keep)
			var frames [][]byte
			for i := range 200 {
				frames = append(frames, text(fmt.Sprint(i)))
			}
			frames = append(frames, text(long(30<<10)), text("last"))
			c := f.raw(t, frames...)
			for i := range 200 {
				c.want(t, websockettest.Text, fmt.Sprint(i))
			}
			c.want(t, websockettest.Text, long(30<<10))
			c.want(t, websockettest.Text, "last")
			c.write(t, text("later"))
			c.want(t, websockettest.Text, "later")
		})
	}
}

// A frame may arrive in parts of any size, also behind the request.
func TestFramesInSmallSegments(t *testing.T) {
	f := serve(t, stream.Config{}, websocket.Options{}, echoes)
	c := f.dial(t)
	all := append([]byte(upgrade), slices.Concat(text("one"), text(long(300)), text("three"))...)
	for len(all) > 0 {
		n := min(len(all), 7)
		c.write(t, all[:n])
		all = all[n:]
	}
	c.accepted(t)
	for _, want := range []string{"one", long(300), "three"} {
		c.want(t, websockettest.Text, want)
	}
}

func TestControlFramesWithinFragments(t *testing.T) {
	f := serve(t, stream.Config{}, websocket.Options{}, echoes)
	c := f.raw(t, part(websockettest.Text, "h\xc3"), part(websockettest.Final|websockettest.Ping, "first"))
	c.want(t, websockettest.Pong, "first")
	c.write(t, slices.Concat(part(websockettest.Continuation, ""), part(websockettest.Final|websockettest.Pong, "unasked")))
	c.write(t, part(websockettest.Final|websockettest.Ping, long(125)))
	c.want(t, websockettest.Pong, long(125))
	c.write(t, part(websockettest.Final|websockettest.Continuation, "\xa4"))
	c.want(t, websockettest.Text, "hä")
	c.write(t, slices.Concat(part(websockettest.Binary, "x"), closing(1000, "")))
	c.wantClose(t, 1000, "")
	if err := f.ended(t); !errors.Is(err, io.EOF) {
		t.Errorf("the handler got %v, want EOF", err)
	}
}

func TestViolationsCloseTheConnection(t *testing.T) {
	const maxMessage, maxFragments = 1000, 10
	unmasked := []byte{websockettest.Final | websockettest.Text, 1, 'x'}
	header := func(first byte, length ...byte) []byte {
		return append(append([]byte{first}, length...), 1, 2, 3, 4)
	}
	for _, tt := range []struct {
		name   string
		frames []byte
		code   int
		reason string
	}{
		{"not masked", unmasked, 1002, "bad MASK"},
		{"a compressed message", part(0xc0|websockettest.Text, "x"), 1002, "RSV1 set"},
		{"an extension", part(0xb0|websockettest.Text, "x"), 1002, "RSV2 set, RSV3 set"},
		{"an unknown opcode", part(websockettest.Final|3, "x"), 1002, "bad opcode 3"},
		{"an unknown control opcode", part(websockettest.Final|11, "x"), 1002, "bad opcode 11"},
		{"a ping in fragments", part(websockettest.Ping, "x"), 1002, "FIN not set on control"},
		{"a long ping", part(websockettest.Final|websockettest.Ping, long(126)), 1002, "len > 125 for control"},
		{"a continuation without a start", part(websockettest.Final|websockettest.Continuation, "x"), 1002, "continuation after FIN"},
		{"a message within a message", slices.Concat(part(websockettest.Text, "x"), text("y")), 1002, "data before FIN"},
		{"a close code that must not be sent", closing(1005, ""), 1002, "bad close code 1005"},
		{"an unassigned close code", closing(2999, ""), 1002, "bad close code 2999"},
		{"a close reason that is not UTF-8", closing(1000, "\xff"), 1002, "invalid utf8 payload in close frame"},
		{"text that is not UTF-8", text("\xff"), 1007, "a text message is not UTF-8"},
		{"a rune that is cut", slices.Concat(part(websockettest.Text, "\xe2"), part(websockettest.Final, "\x82")), 1007, "a text message is not UTF-8"},
		{"a large message", text(long(maxMessage + 1)), 1009, ""},
		{"a large message in fragments", slices.Concat(part(websockettest.Text, long(maxMessage)), part(websockettest.Final, "x")), 1009, ""},
		{"a length of 4 GiB", header(0x82, 0xff, 0, 0, 0, 1, 0, 0, 0, 0), 1009, ""},
		{"a length of 2^63", header(0x82, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0), 1009, "the message is too large"},
		{"a length of 2^64-1", header(0x82, 0xff, 255, 255, 255, 255, 255, 255, 255, 255), 1009, "the message is too large"},
		{"lengths whose sum overflows", slices.Concat(part(websockettest.Binary, "x"), header(0x80, 0xff, 0x7f, 255, 255, 255, 255, 255, 255, 255)), 1009, "the message is too large"},
		{"too many fragments", slices.Concat(part(websockettest.Text, "x"), bytes.Repeat(part(websockettest.Continuation, "y"), maxFragments)), 1008, "the message has too many fragments"},
		{"endless empty fragments", slices.Concat(part(websockettest.Text, ""), bytes.Repeat(part(websockettest.Continuation, ""), 100)), 1008, "the message has too many fragments"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := serve(t, stream.Config{}, websocket.Options{MaxMessage: maxMessage, MaxFragments: maxFragments}, echoes)
			c := f.raw(t, text("before"), tt.frames)
			c.want(t, websockettest.Text, "before")
			c.write(t, text("after")) // or the connection might be reset
			c.wantClose(t, tt.code, tt.reason)
			if err := f.ended(t); !kind.Is(err, kind.Invalid) {
				t.Errorf("the handler got %v, want Invalid", err)
			}
			c.Close()
			f.wantEnded(t, "violation", 1)
		})
	}
}

func TestTheLargestMessagesAreAccepted(t *testing.T) {
	const maxMessage, maxFragments = 1000, 10
	f := serve(t, stream.Config{}, websocket.Options{MaxMessage: maxMessage, MaxFragments: maxFragments}, echoes)
	c := f.raw(t)
	for range 3 {
		c.write(t, text(long(maxMessage)))
		c.want(t, websockettest.Text, long(maxMessage))
		c.write(t, slices.Concat(part(websockettest.Text, "x"), bytes.Repeat(part(websockettest.Continuation, "y"), maxFragments-2), part(websockettest.Final, "z")))
		c.want(t, websockettest.Text, "xyyyyyyyyz")
	}
}

func TestMessagesOfManyGoroutinesStayWhole(t *testing.T) {
	const writers, each = 20, 50
	f := serve(t, stream.Config{}, websocket.Options{}, websocket.Handler{Serve: func(_ context.Context, c *websocket.Conn) error {
		var g sync.WaitGroup
		for w := range writers {
			g.Go(func() {
				for i := range each {
					c.Write(websocket.Text, fmt.Appendf(nil, "%d %d %s", w, i, long(w*i*20)))
				}
			})
		}
		go c.Discard()
		g.Wait()
		return nil
	}})
	c := f.connect(t, nil)
	next := make([]int, writers)
	for range writers * each {
		_, b, err := c.ReadMessage()
		if err != nil {
			t.Fatal(err)
		}
		var w, i int
		fmt.Sscanf(string(b), "%d %d", &w, &i)
		if want := fmt.Sprintf("%d %d %s", w, next[w], long(w*i*20)); string(b) != want {
			t.Fatalf("got %.50q, want %.50q", b, want)
		}
		next[w]++
	}
	if _, _, err := c.ReadMessage(); !client.IsCloseError(err, client.CloseNormalClosure) {
		t.Errorf("at the end: %v", err)
	}
}

func TestOnlyTheStalledReaderIsDisconnected(t *testing.T) {
	const n, size = 60, 256 << 10
	f := serve(t, stream.Config{WriteTimeout: 2 * time.Second}, websocket.Options{}, websocket.Handler{Serve: func(_ context.Context, c *websocket.Conn) error {
		go c.Discard()
		for range n {
			if err := c.Write(websocket.Binary, make([]byte, size)); err != nil {
				return err
			}
		}
		return nil
	}})
	f.raw(t) // reads nothing
	c := f.connect(t, nil)
	for i := range n {
		if _, b, err := c.ReadMessage(); err != nil || len(b) != size {
			t.Fatalf("message %d: %d bytes, %v", i, len(b), err)
		}
	}
	if _, _, err := c.ReadMessage(); !client.IsCloseError(err, client.CloseNormalClosure) {
		t.Errorf("at the end: %v", err)
	}
	c.Close()
	errs := []error{f.ended(t), f.ended(t)}
	if !slices.ContainsFunc(errs, isTimeout) || !slices.Contains(errs, nil) {
		t.Errorf("the handlers ended with %v", errs)
	}
	f.wantEnded(t, "stalled", 1)
	f.wantEnded(t, "server", 1)
}

// A ping is answered while the client reads too slowly for the messages that are sent: the
// handler must continue to read.
func TestReadingDoesNotWaitForAWriter(t *testing.T) {
	const size = 16 << 20
	got := make(chan string, 1)
	f := serve(t, stream.Config{}, websocket.Options{}, websocket.Handler{Serve: func(_ context.Context, c *websocket.Conn) error {
		go c.Write(websocket.Binary, make([]byte, size)) // more than the sockets hold
		for {
			m, err := c.Read()
			if err != nil {
				return err
			}
			got <- string(m.Data)
			m.Release()
		}
	}})
	c := f.raw(t)
	if _, err := c.r.Peek(1); err != nil { // the write has begun
		t.Fatal(err)
	}
	for i := range 20 {
		c.write(t, slices.Concat(part(websockettest.Final|websockettest.Ping, fmt.Sprint(i)), text(fmt.Sprint(i))))
		if m := <-got; m != fmt.Sprint(i) {
			t.Fatalf("got %q, want %d", m, i)
		}
	}
	if m := c.frame(t); len(m.Payload) != size {
		t.Errorf("got %d bytes", len(m.Payload))
	}
	c.want(t, websockettest.Pong, "19")
}

func TestMessagesCountAgainstTheBudget(t *testing.T) {
	const size = 300 << 10
	hold, held := make(chan struct{}), make(chan struct{}, 10)
	f := serve(t, stream.Config{Budget: 4 << 20}, websocket.Options{}, websocket.Handler{Serve: func(_ context.Context, c *websocket.Conn) error {
		var all []websocket.Message
		for range 3 {
			m, err := c.Read()
			if err != nil {
				return err
			}
			all = append(all, m)
			held <- struct{}{}
		}
		<-hold
		for i := range all {
			all[i].Release()
			all[i].Release() // twice is once
		}
		return echo(context.Background(), c)
	}})
	free := func(n int) bool { // n bytes are available to the tenant
		b := f.streams.Budget(tenant)
		defer b.Shrink(0)
		return b.Grow(stream.BaseBudget + n)
	}
	c := f.raw(t)
	for range 3 {
		c.write(t, text(long(size)))
		<-held
	}
	if free(2<<20 - 3*size/2) {
		t.Error("held messages are not counted")
	}
	hold <- struct{}{}
	if !eventually(func() bool { return free(2 << 20) }) {
		t.Error("the messages are released, but counted")
	}
	c.write(t, text(long(size)))
	c.want(t, websockettest.Text, long(size))

	// Another client of the tenant takes the rest: messages do not fit any more.
	rest := f.streams.Budget(tenant)
	if !eventually(func() bool { return rest.Grow(stream.BaseBudget + 2<<20) }) { // the last message is about to be released
		t.Fatal("no budget")
	}
	defer rest.Shrink(0)
	c.write(t, text("small"))
	c.want(t, websockettest.Text, "small")
	c.write(t, text(long(size)))
	c.wantClose(t, 1013, "too much memory is used by large requests and responses: retry when others of yours have finished")
	if err := f.ended(t); !errors.Is(err, stream.ErrOverBudget) {
		t.Errorf("the handler got %v", err)
	}
}

// A connection releases what its handler did not.
func TestTheEndReleasesTheBudget(t *testing.T) {
	late := make(chan websocket.Message, 1)
	f := serve(t, stream.Config{Budget: 2 << 20}, websocket.Options{}, websocket.Handler{Serve: func(_ context.Context, c *websocket.Conn) error {
		m, err := c.Read()
		late <- m
		return err
	}})
	c := f.raw(t, text(long(400<<10)))
	c.want(t, websockettest.Close, "\x03\xe8")
	c.Close()
	if !eventually(func() bool { return f.server.Open() == 0 }) {
		t.Fatal("the connection is open")
	}
	m := <-late
	m.Release()
	if b := f.streams.Budget(tenant); !b.Grow(stream.BaseBudget + 1<<20) {
		t.Error("the budget is not released")
	}
}

func TestAFloodOfPingsHarmsOnlyItself(t *testing.T) {
	f := serve(t, stream.Config{WriteTimeout: 300 * time.Millisecond}, websocket.Options{}, echoes)
	flood := f.raw(t)
	flood.SetWriteDeadline(time.Now().Add(patience))
	pings := bytes.Repeat(part(websockettest.Final|websockettest.Ping, long(125)), 1000)
	gone := make(chan error, 1)
	go func() { // and reads no pong
		for {
			if _, err := flood.Write(pings); err != nil {
				gone <- err
				return
			}
		}
	}()
	c := f.connect(t, http.Header{})
	for range 50 {
		if err := c.WriteMessage(client.TextMessage, []byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, _, err := c.ReadMessage(); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-gone; isTimeout(err) {
		t.Error("a client that reads no pong was not disconnected")
	}
	f.wantEnded(t, "stalled", 1)
}

var _ net.Conn = (*rawClient)(nil)
