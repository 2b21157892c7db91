package websocket_test

import (
	"bytes"
	"io"
	"testing"
	"time"

	"github.com/millrace/millrace/services/gateway/internal/stream"
	"github.com/millrace/millrace/services/gateway/internal/websocket"
	"github.com/millrace/millrace/services/gateway/internal/websocket/websockettest"
)

// Whatever a client sends, the server sends valid frames, none after a close frame, and ends
// the connection.
func FuzzConnection(f *testing.F) {
	s := serve(f, stream.Config{Budget: 1 << 20}, websocket.Options{MaxMessage: 4096, MaxFragments: 8, CloseTimeout: time.Second}, echoes)
	for _, seed := range [][]byte{
		nil, text("x"), closing(1000, "x"), closing(1005, ""), part(0xc1, "x"), part(websockettest.Text, "x"), text("\xff"), text(long(4097)),
		append(part(websockettest.Text, "h\xc3"), append(part(0x89, "ping"), part(0x80, "\xa4")...)...),
		bytes.Repeat(part(0, ""), 20), {0x82, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4}, {0x81, 1, 'x'}, {0x88, 0x80}, {0x81},
	} {
		f.Add(seed, 3)
	}
	f.Fuzz(func(t *testing.T, sent []byte, cut int) {
		c := s.dial(t)
		all := append([]byte(upgrade), sent...)
		cut = min(max(cut, 0), len(all))
		go func() { // the server may end the connection first
			c.Write(all[:cut])
			c.Write(all[cut:])
			c.CloseWrite()
		}()
		c.accepted(t)
		raw, err := io.ReadAll(c.r)
		if isTimeout(err) {
			t.Fatal("the connection does not end")
		}
		frames, bad := websockettest.ReadAll(bytes.NewReader(raw))
		if bad != nil && err == nil {
			t.Fatalf("% x: %v", raw, bad)
		}
		for i, f := range frames {
			if f.Op == websockettest.Close && i != len(frames)-1 {
				t.Fatalf("frames after a close frame: %v", frames)
			}
		}
		c.Close()
	})
}

// A message of the encoder's helpers is one frame.
func FuzzMessages(f *testing.F) {
	for _, n := range []int{0, 1, 125, 126, 65535, 65536} {
		f.Add([]byte("before"), []byte(long(n)), true)
	}
	f.Fuzz(func(t *testing.T, before, payload []byte, binary bool) {
		typ := websocket.Text
		if binary {
			typ = websocket.Binary
		}
		buf := websocket.AppendMessage(bytes.Clone(before), typ, payload)
		if begun := websocket.EndMessage(append(websocket.BeginMessage(bytes.Clone(before)), payload...), len(before), typ); !bytes.Equal(begun, buf) {
			t.Fatalf("AppendMessage and EndMessage differ for %d bytes", len(payload))
		}
		buf = websocket.AppendMessage(buf, websocket.Text, before)
		if !bytes.HasPrefix(buf, before) {
			t.Fatal("the bytes before were changed")
		}
		frames, err := websockettest.ReadAll(bytes.NewReader(buf[len(before):]))
		if err != nil || len(frames) != 2 || frames[0].Op != byte(typ) || !bytes.Equal(frames[0].Payload, payload) || !bytes.Equal(frames[1].Payload, before) {
			t.Fatalf("%d bytes: %d frames, %v", len(payload), len(frames), err)
		}
	})
}
