package port_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/millrace/millrace/events/mux"
)

// post begins a request with a body of length bytes, or a chunked one if that is
// negative, to the gateway at addr.
func post(t *testing.T, addr string, length int) (*net.TCPConn, *bufio.Reader) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(20 * time.Second))
	framing := fmt.Sprintf("Content-Length: %d", length)
	if length < 0 {
		framing = "Transfer-Encoding: chunked"
	}
	fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: 8080-%s.x\r\n%s\r\n\r\n", id, framing)
	return c.(*net.TCPConn), bufio.NewReader(c)
}

// A server may reject a request and close without reading it; many clients read nothing
// until they have sent everything.
func TestEarlyResponsesReachClientsThatSendEverythingFirst(t *testing.T) {
	const size = 16 << 20
	no := bytes.Repeat([]byte("no! "), 12_000)
	addr, _ := gateway(t, func(w http.ResponseWriter, _ *http.Request) {
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close() // sends a reset, as bytes are unread
		fmt.Fprintf(rw, "HTTP/1.1 413 Too Large\r\nContent-Length: %d\r\n\r\n%s", len(no), no)
		rw.Flush()
	})
	for range 5 {
		c, r := post(t, addr, size)
		if _, err := io.CopyN(c, zeroes{}, size); err != nil {
			t.Fatalf("the body was cut off: %v", err)
		}
		res, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(res.Body)
		if res.StatusCode != http.StatusRequestEntityTooLarge || !bytes.Equal(got, no) || err != nil {
			t.Errorf("got %s, %d bytes of %d, %v: %.200s", res.Status, len(got), len(no), err, got)
		}
	}
}

func TestErrorsReachClientsThatSendEverythingFirst(t *testing.T) {
	const size = 16 << 20
	addr, in := gateway(t, func(http.ResponseWriter, *http.Request) {})
	in.paused = true
	for range 5 {
		c, r := post(t, addr, size)
		if _, err := io.CopyN(c, zeroes{}, size); err != nil {
			t.Fatalf("the body was cut off: %v", err)
		}
		res, err := http.ReadResponse(r, nil)
		if err != nil || res.StatusCode != http.StatusBadGateway {
			t.Fatalf("got %v, %v", res, err)
		}
		if got, err := io.ReadAll(res.Body); !bytes.Contains(got, []byte("The sandbox was not found")) || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
	}
}

func TestResponsesArriveDuringTheirRequests(t *testing.T) {
	addr, _ := gateway(t, func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		rc.EnableFullDuplex()
		for b := make([]byte, 4); ; {
			if _, err := io.ReadFull(r.Body, b); err != nil {
				io.WriteString(w, "end")
				return
			}
			w.Write(b)
			rc.Flush()
		}
	})
	c, r := post(t, addr, -1)
	const n = 10
	io.WriteString(c, "4\r\nword\r\n")
	res, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	word := make([]byte, 4)
	for i := range n {
		if _, err := io.ReadFull(res.Body, word); err != nil {
			t.Fatalf("after %d: %v", i, err)
		}
		if i < n-1 {
			fmt.Fprintf(c, "4\r\n%s\r\n", word)
		}
	}
	io.WriteString(c, "0\r\n\r\n")
	if rest, err := io.ReadAll(res.Body); string(rest) != "end" || err != nil {
		t.Errorf("got %q, %v", rest, err)
	}
}

// If the response waits for the whole body, the connection is reused.
func TestAResponseAfterTheBodyKeepsTheConnection(t *testing.T) {
	addr, _ := gateway(t, func(_ http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) })
	c, r := post(t, addr, 1<<20)
	for i := range 50 {
		if i > 0 {
			fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: 8080-%s.x\r\nContent-Length: %d\r\n\r\n", id, 1<<20)
		}
		io.CopyN(c, zeroes{}, 1<<20)
		res, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatalf("answer %d: %v", i, err)
		}
		if res.Close || res.StatusCode != http.StatusOK {
			t.Fatalf("answer %d: %s, close %v", i, res.Status, res.Close)
		}
	}
}

func TestADisconnectDuringAnUploadEndsTheResponse(t *testing.T) {
	gone := make(chan struct{})
	addr, _ := gateway(t, func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		rc.EnableFullDuplex()
		io.WriteString(w, "begun")
		rc.Flush()
		io.Copy(io.Discard, r.Body)
		close(gone)
	})
	c, r := post(t, addr, -1)
	if _, err := http.ReadResponse(r, nil); err != nil {
		t.Fatal(err)
	}
	c.Close()
	select {
	case <-gone:
	case <-time.After(time.Minute):
		t.Error("the server's request was not canceled")
	}
}

func TestAnIncompleteSmallBodyIsNotPassedOn(t *testing.T) {
	requested := make(chan struct{}, 1)
	addr, _ := gateway(t, func(http.ResponseWriter, *http.Request) { requested <- struct{}{} })
	c, r := post(t, addr, 1000)
	io.WriteString(c, "some of it")
	c.CloseWrite()
	res, err := http.ReadResponse(r, nil)
	if err != nil || res.StatusCode != http.StatusBadRequest {
		t.Errorf("got %v, %v", res, err)
	}
	select {
	case <-requested:
		t.Error("the server received a request")
	default:
	}
}

// A disconnect is detected even while the server reads nothing.
func TestDisconnectIsDetectedWhileTheServerDoesNotRead(t *testing.T) {
	over := make(chan struct{})
	addr, in := gateway(t, func(http.ResponseWriter, *http.Request) { <-over })
	defer close(over)
	in.opened = make(chan *mux.Stream, 1)
	c, _ := post(t, addr, 1<<30)
	c.SetWriteDeadline(time.Now().Add(2 * time.Second)) // fails once all buffers are full
	io.Copy(c, zeroes{})
	s := <-in.opened
	c.SetLinger(0)
	c.Close()
	s.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := s.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the stream to the server: %v", err)
	}
}
