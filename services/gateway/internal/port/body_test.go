package port_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// A request with a body may request another protocol, as Java's clients always do. The gateway
// removes the header if the body may still arrive when the server responds: the reader of the
// body would lose the connection.
func TestUpgradeWithABodyIsNotPassedOn(t *testing.T) {
	addr, _ := gateway(t, func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).EnableFullDuplex()
		w.WriteHeader(http.StatusOK)
		http.NewResponseController(w).Flush() // the response has begun, and the body has not been read
		n, err := io.Copy(io.Discard, r.Body)
		fmt.Fprintf(w, "%d, %v, %q", n, err, r.Header.Get("Upgrade"))
	})
	for _, tt := range []struct {
		length  int
		chunked bool
		want    string
	}{
		{5, false, `5, <nil>, "h2c"`},
		{10 << 20, false, `10485760, <nil>, ""`},
		{10 << 20, true, `10485760, <nil>, ""`},
	} {
		req := request(t, "POST", addr, "/", bytes.NewReader(make([]byte, tt.length)))
		if tt.chunked {
			req.ContentLength = -1
		}
		req.Header.Set("Connection", "Upgrade, HTTP2-Settings")
		req.Header.Set("Upgrade", "h2c")
		if res, got := do(t, req); res.StatusCode != http.StatusOK || got != tt.want {
			t.Errorf("%d bytes, chunked %v: %d %q, want %q", tt.length, tt.chunked, res.StatusCode, got, tt.want)
		}
	}
}

// A chunked body stays chunked with any method: the transport does not probe it while it
// writes the head. A request with very many trailers is rejected.
func TestChunkedBodiesOfMethodsWithoutABody(t *testing.T) {
	addr, _ := gateway(t, func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%v %q %v", r.TransferEncoding, b, err)
	})
	many := "Trailer: " + strings.TrimSuffix(strings.Repeat("X-A,", 65), ",") + "\r\n"
	for _, tt := range []struct {
		head, body string
		status     int
		want       string
	}{
		{"", "0\r\n\r\n", 200, `[chunked] "" <nil>`},
		{"", "2\r\nhi\r\n0\r\n\r\n", 200, `[chunked] "hi" <nil>`},
		{many, "0\r\n\r\n", 400, ""},
	} {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(time.Minute))
		fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: 8080-%s.x\r\nTransfer-Encoding: chunked\r\n%s\r\n%s", id, tt.head, tt.body)
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != tt.status || tt.want != "" && string(got) != tt.want {
			t.Errorf("%q: %d %q, %v; want %d %q", tt.body, res.StatusCode, got, err, tt.status, tt.want)
		}
	}
}
