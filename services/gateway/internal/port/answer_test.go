package port_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// respondWith returns the address of a gateway to a server with a fixed response.
func respondWith(t *testing.T, answer string) string {
	t.Helper()
	addr, _ := gateway(t, func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		io.WriteString(c, answer)
		io.Copy(io.Discard, c)
	})
	return addr
}

// The gateway's response is well-formed for any response of the server: a proxy in front of the
// gateway may share its connection among clients.
func TestInvalidResponsesAreNotPassedOn(t *testing.T) {
	for _, answer := range []string{
		"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n",
		"HTTP/1.1 101 Switching Protocols\r\n\r\n",
		"HTTP/1.1 099 x\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 000 x\r\nContent-Length: 0\r\n\r\n",
	} {
		addr := respondWith(t, answer)
		for _, body := range []string{"", "small", strings.Repeat("large", 20<<10)} {
			req := request(t, "POST", addr, "/", strings.NewReader(body))
			if res, got := do(t, req); res.StatusCode != http.StatusBadGateway || !strings.Contains(got, "did not answer") {
				t.Errorf("%q to a body of %d: %d %s", answer, len(body), res.StatusCode, got)
			}
		}
	}
}

func TestTheStatusLineIsOneLine(t *testing.T) {
	addr := respondWith(t, "HTTP/1.1 200 a\rX-B: c\x00\x7f\r\nContent-Length: 0\r\n\r\n")
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: 8080-%s.x\r\n\r\n", id)
	if got, err := bufio.NewReader(c).ReadString('\n'); got != "HTTP/1.1 200 a X-B: c  \r\n" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}
