package e2e_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fasthttp/websocket"
)

// Whatever JSON a client sends has one answer, and its connection goes on.
func TestCodexHostileMessages(t *testing.T) {
	t.Parallel()
	c, _ := newCodex(t)
	status := func(more string) string { return `{"id":1,"method":"environment/status"` + more + `}` }
	nested := func(open, end string) string { return strings.Repeat(open, 1e5) + strings.Repeat(end, 1e5) }
	keys := new(strings.Builder)
	for i := range 1_000_000 { // 11 MiB
		fmt.Fprintf(keys, `,"k%d":0`, i)
	}
	longID := `"` + strings.Repeat("i", 8<<10) + `"`
	for _, tt := range []struct {
		name, message, id string
		code              int
	}{
		{"depth 10^5", `{"id":1,"method":"environment/status","params":` + nested("[", "]") + `}`, "-1", -32600},
		{"depth 10^5 of objects that do not end", strings.Repeat(`{"a":`, 1e5), "-1", -32600},
		{"10^6 keys", status(keys.String()), "1", 0},
		{"duplicate keys", `{"id":1,"id":2,"method":"environment/status"}`, "-1", -32600},
		{"a duplicate parameter", `{"id":1,"method":"process/read","params":{"processId":"a","processId":"b"}}`, "1", -32602},
		{"1e999", `{"id":1e999,"method":"environment/status"}`, "-1", -32600},
		{"1e999 as a parameter", `{"id":1,"method":"process/read","params":{"processId":"p","afterSeq":1e999}}`, "1", -32602},
		{"a negative number", `{"id":1,"method":"process/read","params":{"processId":"p","afterSeq":-1}}`, "1", -32602},
		{"NaN", `{"id":NaN,"method":"environment/status"}`, "-1", -32600},
		{"a byte order mark", "\ufeff" + status(""), "-1", -32600},
		{"trailing data", status("") + "x", "-1", -32600},
		{"two messages", status("") + status(""), "-1", -32600},
		{"a lone surrogate", `{"id":1,"method":"fs/getMetadata","params":{"path":"/\ud800"}}`, "1", -32004},
		{"NUL in a path", `{"id":1,"method":"fs/getMetadata","params":{"path":"/\u0000"}}`, "1", -32602},
		{"a batch", "[" + status("") + "," + status("") + "]", "-1", -32600},
		{"an empty batch", "[]", "-1", -32600},
		{"a null id", `{"id":null,"method":"environment/status"}`, "-1", -32600},
		{"a float as id", `{"id":1.5,"method":"environment/status"}`, "-1", -32600},
		{"an object as id", `{"id":{},"method":"environment/status"}`, "-1", -32600},
		{"an id of 8 KiB", `{"id":` + longID + `,"method":"environment/status"}`, longID, 0},
		{"unknown fields", status(`,"trace":{"a":[1]},"x":null`), "1", 0},
		{"a method of 1 MiB", `{"id":1,"method":"` + strings.Repeat("m", 1<<20) + `"}`, "-1", -32600},
		{"an invalid base64", `{"id":1,"method":"process/write","params":{"processId":"p","chunk":"%%%"}}`, "1", -32602},
		{"base64 with a line end", `{"id":1,"method":"process/write","params":{"processId":"p","chunk":"YQ==\n"}}`, "1", -32602},
		{"15 MiB of base64", `{"id":1,"method":"process/write","params":{"processId":"p","chunk":"` + strings.Repeat("AAAA", 15<<18) + `"}}`, "1", -32600},
		{"a processId of 1 MiB", `{"id":1,"method":"process/terminate","params":{"processId":"` + strings.Repeat("p", 1<<20) + `"}}`, "1", -32602},
	} {
		c.send(tt.message)
		m := c.answer(tt.id)
		code := 0
		if m.Error != nil {
			code = m.Error.Code
		}
		if code != tt.code {
			t.Errorf("%s: %v, want %d", tt.name, m.Error, tt.code)
		}
	}
	// No name of a client becomes a part of a subject. X-018: each is a process of its own.
	for i, id := range []string{"", "*", ">", "a.b", "a.>", " ", "\n", "a\u0000b", "../../x", "$SYS", strings.Repeat("p", 4<<10), "ü"} {
		text := fmt.Sprint("process ", i)
		c.start(id, "echo "+text)
		if o := c.closed(id); string(o.bytes["stdout"]) != text+"\n" {
			t.Errorf("%.20q printed %q", id, o.bytes["stdout"])
		}
	}
}

// A client with many requests in flight gets an answer to each, and harms no other: 10^4, or
// 10^5 with EnvSoak.
func TestCodexManyRequests(t *testing.T) {
	t.Parallel()
	requests := 10_000
	if os.Getenv(EnvSoak) != "" {
		requests = 100_000
	}
	a := api(t)
	box := a.Create(t)
	path := "/codex/" + box.ID
	other := dialCodex(t, a, path)
	other.begin("")
	ctx, cancel := context.WithTimeout(t.Context(), codexTimeout)
	defer cancel()
	ws, status, err := tryCodex(ctx, a, path, "Authorization", "Bearer "+a.Key)
	if err != nil {
		t.Fatalf("connect: %d %v", status, err)
	}
	defer ws.Close()
	sent := make(chan error, 1)
	go func() {
		lines := []string{`{"id":-2,"method":"initialize","params":{"clientName":"many"}}`, `{"method":"initialized"}`}
		for i := range requests {
			lines = append(lines, fmt.Sprintf(`{"id":%d,"method":"process/read","params":{"processId":"missing","waitMs":1000}}`, i))
		}
		for _, l := range lines {
			if err := ws.WriteMessage(websocket.TextMessage, []byte(l)); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	for i := range 5 { // meanwhile
		name := fmt.Sprint(i)
		other.start(name, "echo "+name)
		if o := other.closed(name); string(o.bytes["stdout"]) != name+"\n" {
			t.Errorf("another client's process printed %q", o.bytes["stdout"])
		}
	}
	ws.SetReadDeadline(time.Now().Add(2 * time.Minute))
	for n := range requests + 1 {
		if _, _, err := ws.ReadMessage(); err != nil {
			t.Fatalf("after %d answers: %v", n, err)
		}
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

// Frames that violate WebSocket end their connection, and no other.
func TestCodexHostileFrames(t *testing.T) {
	t.Parallel()
	a := api(t)
	box := a.Create(t)
	other := dialCodex(t, a, "/codex/"+box.ID)
	other.begin("")
	frame := func(first byte, masked bool, length uint64, data string) []byte {
		b := []byte{first, 127}
		if masked {
			b[1] |= 0x80
		}
		b = binary.BigEndian.AppendUint64(b, length)
		if masked {
			b = append(b, 0, 0, 0, 0)
		}
		return append(b, data...)
	}
	const text, fragment, more, ping, compressed, reserved = 0x81, 0x01, 0x00, 0x89, 0xc1, 0x83
	mib := strings.Repeat("x", 1<<20)
	tests := []struct {
		name   string
		frame  []byte
		repeat int
	}{
		{"not masked", frame(text, false, 2, "{}"), 1},
		{"a length of 2^63", frame(text, true, 1<<63, ""), 1},
		{"a length of 2^62", frame(text, true, 1<<62, ""), 1},
		{"longer than a message", frame(text, true, 17<<20, ""), 1},
		{"text that is not UTF-8", frame(text, true, 2, "\xff\xfe"), 1},
		{"compressed without an agreement", frame(compressed, true, 4, "\x4b\x4c\x04\x00"), 1},
		{"a reserved type", frame(reserved, true, 1, "x"), 1},
		{"a fragmented ping", frame(ping&^0x80, true, 1, "x"), 1},
		{"a long ping", frame(ping, true, 126, mib[:126]), 1},
		{"a rest without a beginning", frame(more, true, 1, "x"), 1},
		{"two beginnings", frame(fragment, true, 1, "x"), 2},
		{"fragments without an end", append(frame(fragment, true, 1, "x"), frame(more, true, 1<<20, mib)...), 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), codexTimeout)
			defer cancel()
			ws, status, err := tryCodex(ctx, a, "/codex/"+box.ID, "Authorization", "Bearer "+a.Key)
			if err != nil {
				t.Fatalf("connect: %d %v", status, err)
			}
			defer ws.Close()
			conn := ws.NetConn()
			go func() {
				for range tt.repeat {
					if _, err := conn.Write(tt.frame); err != nil {
						return
					}
				}
				for strings.HasSuffix(tt.name, "an end") {
					if _, err := conn.Write(frame(more, true, 1<<20, mib)); err != nil {
						return
					}
				}
			}()
			conn.SetReadDeadline(time.Now().Add(codexTimeout))
			for {
				_, _, err := ws.ReadMessage()
				if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() {
					t.Fatal("the connection is still open")
				}
				if err != nil {
					return
				}
			}
		})
	}
	other.start("still", "echo here")
	if o := other.closed("still"); string(o.bytes["stdout"]) != "here\n" {
		t.Errorf("another client's process printed %q", o.bytes["stdout"])
	}
}
