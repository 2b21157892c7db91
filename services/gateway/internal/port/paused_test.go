package port_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// A reused connection must not hide that the sandbox is paused.
func TestAPausedSandboxIsA502OnAReusedConnection(t *testing.T) {
	addr, in := gateway(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") })
	if _, body := do(t, request(t, "GET", addr, "/", nil)); body != "hello" {
		t.Fatal(body)
	}
	in.mu.Lock()
	in.paused = true
	in.mu.Unlock()
	for _, method := range []string{"GET", "POST"} {
		res, body := do(t, request(t, method, addr, "/", strings.NewReader("x")))
		if res.StatusCode != http.StatusBadGateway || !strings.Contains(body, "The sandbox was not found") {
			t.Errorf("%s: %s %s", method, res.Status, body)
		}
	}
}

// Data on an open WebSocket is traffic, like a request.
func TestDataOnASwitchedConnectionWakesTheSandbox(t *testing.T) {
	addr, in := gateway(t, func(w http.ResponseWriter, _ *http.Request) {
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		io.WriteString(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: lines\r\n\r\n")
		rw.Flush()
		line, _ := rw.ReadString('\n')
		io.WriteString(rw, line)
		rw.Flush()
	})
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Minute))
	fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: 8080-%s.x\r\nConnection: Upgrade\r\nUpgrade: lines\r\n\r\n", id)
	r := bufio.NewReader(c)
	if res, err := http.ReadResponse(r, nil); err != nil || res.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(res, err)
	}
	in.mu.Lock()
	before := in.wakes
	in.mu.Unlock()
	io.WriteString(c, "line\n")
	if got, err := r.ReadString('\n'); got != "line\n" || err != nil {
		t.Fatalf("got %q, %v", got, err)
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.wakes == before {
		t.Error("the sandbox was not woken")
	}
}
