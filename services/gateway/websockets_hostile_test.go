package gateway_test

import (
	"encoding/binary"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	fws "github.com/fasthttp/websocket"

	"github.com/millrace/millrace/events/process"
)

// dials returns how to connect to each route with WebSocket and offer compression; more are additional
// headers.
func (f *fixture) dials(t *testing.T) map[string]func(more ...string) (*fws.Conn, *http.Response, error) {
	t.Helper()
	f.withRuntimes()
	f.withEcho(make(chan error, 1000))
	runtime := f.host.Script
	f.host.Script = func(spec *process.Spec) (out string, ends, ok bool) {
		if spec.PTY != nil {
			return "$ ", false, true
		}
		return runtime(spec)
	}
	box, chat := f.create(base), f.createSession(t, sessionBody)
	f.signer().create("/session", withPort, 201)
	dial := func(path string, h http.Header, more []string) (*fws.Conn, *http.Response, error) {
		for i := 0; i+1 < len(more); i += 2 {
			h.Set(more[i], more[i+1])
		}
		return (&fws.Dialer{EnableCompression: true}).Dial("ws://"+f.addr+path, h)
	}
	bearer := func(path, token string) func(...string) (*fws.Conn, *http.Response, error) {
		return func(more ...string) (*fws.Conn, *http.Response, error) {
			return dial(path, http.Header{"Authorization": {"Bearer " + token}}, more)
		}
	}
	signed := func(path string) func(...string) (*fws.Conn, *http.Response, error) {
		return func(more ...string) (*fws.Conn, *http.Response, error) {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+f.addr+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			s := f.signer()
			s.noContentType = true
			s.sign(req)
			return dial(path, req.Header, more)
		}
	}
	return map[string]func(...string) (*fws.Conn, *http.Response, error){
		"codex":    bearer("/codex/"+box.ID, key),
		"e2a":      bearer("/v1/sessions/"+chat.ID+"/ws", chat.JWT),
		"terminal": signed("/stream/session/apps/pty"),
		"run":      signed("/stream/session/apps/execute"),
		"tunnel":   signed("/stream/session/apps/tcpproxy?app=8000"),
	}
}

// rawFrame returns a frame with a length of 64 bits, which may be wrong, and a mask of zeros.
func rawFrame(first byte, length uint64, data string) string {
	return string(binary.BigEndian.AppendUint64([]byte{first, 0xff}, length)) + "\x00\x00\x00\x00" + data
}

// TORTURE F 108: on every route, frames that violate WebSocket close their connection with the code for
// it, and no other connection.
func TestWebSocketsRejectHostileFrames(t *testing.T) {
	f := newFixture(t)
	dials := f.dials(t)
	other := f.signer().view("/stream/session/apps/pty")
	other.until("$ ")
	const text, fragment, more, ping = 0x81, 0x01, 0x00, 0x89
	frames := []struct {
		name, data string
		code       int
	}{
		{"not masked", "\x81\x02{}", 1002},
		{"not masked after many pings", strings.Repeat("\x89\xfd\x00\x00\x00\x00"+strings.Repeat("p", 125), 5000) + "\x81\x02{}", 1002},
		{"a length of 2^64-1", rawFrame(text, 1<<64-1, ""), 1009},
		{"a length of 2^63", rawFrame(text, 1<<63, ""), 1009},
		{"a length of 2^62", rawFrame(text, 1<<62, ""), 1009},
		{"longer than a message", rawFrame(text, 17<<20, ""), 1009},
		{"text that is not UTF-8", rawFrame(text, 2, "\xff\xfe"), 1007},
		{"half a character", rawFrame(text, 1, "\xe2"), 1007},
		{"compressed without an agreement", rawFrame(0xc1, 4, "\x4b\x4c\x04\x00"), 1002},
		{"a reserved type", rawFrame(0x83, 1, "x"), 1002},
		{"a reserved control frame", rawFrame(0x8b, 1, "x"), 1002},
		{"a fragmented ping", rawFrame(ping&^0x80, 1, "x"), 1002},
		{"a long ping", rawFrame(ping, 126, strings.Repeat("p", 126)), 1002},
		{"a rest without a beginning", rawFrame(more, 1, "x"), 1002},
		{"two beginnings", rawFrame(fragment, 1, "x") + rawFrame(fragment, 1, "x"), 1002},
		{"fragments without an end", rawFrame(fragment, 0, "") + strings.Repeat(rawFrame(more, 0, ""), 5000), 1008},
		{"a code that must not be sent", "\x88\x82\x00\x00\x00\x00\x03\xed", 1002},
		{"a code of 0", "\x88\x82\x00\x00\x00\x00\x00\x00", 1002},
		{"a reason that is not UTF-8", "\x88\x84\x00\x00\x00\x00\x03\xe8\xff\xfe", 1002},
	}
	for _, route := range slices.Sorted(maps.Keys(dials)) {
		for _, tt := range frames {
			ws, resp, err := dials[route]()
			if err != nil {
				t.Fatalf("%s: %v, %v", route, err, resp)
			}
			ws.SetReadDeadline(time.Now().Add(time.Minute))
			conn := ws.NetConn()
			sent := make(chan struct{})
			go func() { // the gateway may stop reading before the end
				defer close(sent)
				conn.Write([]byte(tt.data))
			}()
			if code := closeCode(t, ws); code != tt.code {
				t.Errorf("%s: %s: closed with %d, want %d", route, tt.name, code, tt.code)
			}
			ws.Close()
			<-sent
		}
	}
	other.stdin("x")
	other.until("x")
}

// TORTURE F 108: pages of other origins, subprotocols and compression. Where a browser's request could have a
// credential that the page does not have, another origin is refused.
func TestWebSocketHandshakes(t *testing.T) {
	f := newFixture(t)
	dials := f.dials(t)
	for _, route := range slices.Sorted(maps.Keys(dials)) {
		for _, tt := range []struct {
			name    string
			headers []string
			foreign bool
		}{
			{"no origin", nil, false},
			{"its own origin", []string{"Origin", "http://" + f.addr}, false},
			{"another origin", []string{"Origin", "https://evil.example"}, true},
			{"no origin's name", []string{"Origin", "null"}, true},
			{"its host as a user", []string{"Origin", "http://" + f.addr + "@evil.example"}, true},
			{"its host as a prefix", []string{"Origin", "http://" + f.addr + ".evil.example"}, true},
			{"its host as a fragment", []string{"Origin", "http://evil.example/#" + f.addr}, true},
			{"unknown subprotocols", []string{"Sec-Websocket-Protocol", "x, y"}, false},
		} {
			ws, resp, err := dials[route](tt.headers...)
			if tt.foreign && route == "codex" {
				if err == nil || resp == nil || resp.StatusCode != http.StatusForbidden {
					t.Errorf("%s from %s: %v, %v", route, tt.name, err, resp)
				}
				continue
			}
			if err != nil {
				t.Fatalf("%s with %s: %v, %v", route, tt.name, err, resp)
			}
			for _, h := range []string{"Sec-Websocket-Protocol", "Sec-Websocket-Extensions"} {
				if v := resp.Header.Get(h); v != "" {
					t.Errorf("%s with %s agreed to %s", route, tt.name, v)
				}
			}
			ws.Close()
		}
	}
}
