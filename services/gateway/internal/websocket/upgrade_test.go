package websocket_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/millrace/millrace/services/gateway/internal/stream"
	"github.com/millrace/millrace/services/gateway/internal/websocket"
	"github.com/millrace/millrace/services/gateway/internal/websocket/websockettest"
)

// with returns the upgrade request with changed lines: "Name: value" replaces the header or
// adds it, "-Name" removes it, "+Name: value" adds it.
func with(changes ...string) string {
	lines := strings.Split(strings.TrimSuffix(upgrade, "\r\n\r\n"), "\r\n")
	for _, change := range changes {
		name, _, _ := strings.Cut(strings.TrimLeft(change, "-+"), ":")
		if change[0] != '+' {
			for i, line := range lines {
				if strings.HasPrefix(line, name+":") {
					lines = append(lines[:i], lines[i+1:]...)
					break
				}
			}
		}
		if change[0] != '-' {
			lines = append(lines, strings.TrimPrefix(change, "+"))
		}
	}
	return strings.Join(lines, "\r\n") + "\r\n\r\n"
}

func TestUpgradesThatAreRefused(t *testing.T) {
	f := serve(t, stream.Config{}, websocket.Options{Origins: []string{"https://console.example.com"}}, echoes)
	for _, tt := range []struct {
		name, request string
		status        int
		header, value string
	}{
		{"no upgrade", with("-Upgrade", "Connection: keep-alive"), http.StatusUpgradeRequired, "Upgrade", "websocket"},
		{"without Connection", with("-Connection"), http.StatusUpgradeRequired, "Upgrade", "websocket"},
		{"without Upgrade", with("-Upgrade"), http.StatusUpgradeRequired, "Upgrade", "websocket"},
		{"another protocol", with("Upgrade: h2c"), http.StatusUpgradeRequired, "Upgrade", "websocket"},
		{"POST", strings.Replace(with("+Content-Length: 0"), "GET", "POST", 1), http.StatusUpgradeRequired, "Upgrade", "websocket"},
		{"HTTP/1.0", strings.Replace(upgrade, "HTTP/1.1", "HTTP/1.0", 1), http.StatusUpgradeRequired, "Upgrade", "websocket"},
		{"another version", with("Sec-WebSocket-Version: 8"), http.StatusUpgradeRequired, "Sec-Websocket-Version", "13"},
		{"without a version", with("-Sec-WebSocket-Version"), http.StatusUpgradeRequired, "Sec-Websocket-Version", "13"},
		{"without a key", with("-Sec-WebSocket-Key"), http.StatusBadRequest, "", ""},
		{"an empty key", with("Sec-WebSocket-Key:"), http.StatusBadRequest, "", ""},
		{"a short key", with("Sec-WebSocket-Key: dGhlIHNhbXBsZQ=="), http.StatusBadRequest, "", ""},
		{"a long key", with("Sec-WebSocket-Key: " + strings.Repeat("dGhl", 100)), http.StatusBadRequest, "", ""},
		{"a key that is not base64", with("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25j$Q=="), http.StatusBadRequest, "", ""},
		{"two keys", with("+Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=="), http.StatusBadRequest, "", ""},
		{"a body", with("+Content-Length: 3") + "abc", http.StatusBadRequest, "Connection", "close"},
		{"a chunked body", with("+Transfer-Encoding: chunked") + "0\r\n\r\n", http.StatusBadRequest, "Connection", "close"},
		{"a foreign origin", with("+Origin: https://evil.example"), http.StatusForbidden, "", ""},
		{"a sandbox's origin", with("+Origin: https://3000-i1.api.example.com"), http.StatusForbidden, "", ""},
		{"an allowed host by another scheme", with("+Origin: http://console.example.com"), http.StatusForbidden, "", ""},
		{"an allowed host as a prefix", with("+Origin: https://console.example.com.evil.example"), http.StatusForbidden, "", ""},
		{"no host", with("+Origin: null"), http.StatusForbidden, "", ""},
		{"a host without a scheme", with("+Origin: api.example.com"), http.StatusForbidden, "", ""},
		{"another port", with("+Origin: https://api.example.com:444"), http.StatusForbidden, "", ""},
		{"an empty origin", with("+Origin: "), http.StatusForbidden, "", ""},
		{"two origins", with("+Origin: https://api.example.com", "+Origin: https://evil.example"), http.StatusForbidden, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := f.dial(t)
			c.write(t, []byte(tt.request))
			res, err := http.ReadResponse(c.r, nil)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(res.Body)
			if err != nil {
				t.Fatal(err)
			}
			got := strings.ToLower(res.Header.Get(tt.header))
			if tt.header == "Connection" && res.Close { // net/http removes the header
				got = "close"
			}
			if res.StatusCode != tt.status || tt.header != "" && got != tt.value {
				t.Errorf("%s %q, header %v; want %d and %s: %s", res.Status, body, res.Header, tt.status, tt.header, tt.value)
			}
			if res.Close {
				return
			}
			c.write(t, []byte(upgrade)) // the connection can be used
			c.accepted(t)
		})
	}
	if n := f.server.Open(); n > 30 {
		t.Errorf("%d connections are open", n)
	}
}

func TestUpgradesThatAreAccepted(t *testing.T) {
	f := serve(t, stream.Config{}, websocket.Options{Origins: []string{"https://console.example.com"}, Protocols: []string{"v2", "v1"}}, echoes)
	for _, tt := range []struct {
		name, request, protocol string
	}{
		{"no page", upgrade, ""},
		{"the own origin", with("+Origin: https://api.example.com"), ""},
		{"the own origin, another case", with("+Origin: https://API.example.com"), ""},
		{"an allowed origin", with("+Origin: https://console.example.com"), ""},
		{"tokens in several headers", with("Connection: keep-alive", "+Connection: x, UPGRADE"), ""},
		{"another case", with("Upgrade: WEBSOCKET", "Connection: upgrade"), ""},
		{"compression is declined", with("+Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits"), ""},
		{"the preferred protocol", with("+Sec-WebSocket-Protocol: v1, v2"), "v2"},
		{"the only known protocol", with("+Sec-WebSocket-Protocol: v3", "+Sec-WebSocket-Protocol: v1"), "v1"},
		{"no known protocol", with("+Sec-WebSocket-Protocol: v3"), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := f.dial(t)
			c.write(t, append([]byte(tt.request), text("x")...))
			res := c.accepted(t)
			for name, want := range map[string]string{
				"Upgrade": "websocket", "Connection": "Upgrade", "Sec-Websocket-Protocol": tt.protocol, "Sec-Websocket-Extensions": "",
				"X-Middleware": "yes", "Content-Type": "", "Content-Length": "", "Server": "",
			} {
				if got := res.Header.Get(name); got != want {
					t.Errorf("%s: %q, want %q", name, got, want)
				}
			}
			c.want(t, websockettest.Text, "x")
		})
	}
}

func TestPagesOfAnyOriginAreAcceptedOnRequest(t *testing.T) {
	f := serve(t, stream.Config{}, websocket.Options{AnyOrigin: true}, echoes)
	c := f.dial(t)
	c.write(t, []byte(with("+Origin: https://evil.example")))
	c.accepted(t)
}

func TestUpgradesAreRefusedAfterADrain(t *testing.T) {
	f := serve(t, stream.Config{}, websocket.Options{}, echoes)
	if err := f.streams.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := f.dial(t)
	c.write(t, []byte(upgrade))
	res, err := http.ReadResponse(c.r, nil)
	if err != nil || res.StatusCode == http.StatusSwitchingProtocols {
		t.Errorf("%v, %v", res, err)
	}
}
