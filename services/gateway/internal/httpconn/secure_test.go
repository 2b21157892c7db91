package httpconn

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"
)

// tlsConfigs returns the configurations of a server and of its clients.
func tlsConfigs(t testing.TB) (server, client *tls.Config) {
	t.Helper()
	srv := httptest.NewTLSServer(nil) // for its certificate
	t.Cleanup(srv.Close)
	client = srv.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	client.ServerName = "example.com"
	return &tls.Config{Certificates: srv.TLS.Certificates, MinVersion: tls.VersionTLS12}, client
}

// versions are the ways in which a client can connect.
var versions = map[string]uint16{"plain": 0, "TLS 1.2": tls.VersionTLS12, "TLS 1.3": tls.VersionTLS13}

// connection is a client's connection, and the socket below.
type connection struct {
	net.Conn
	socket *net.TCPConn
}

// dial connects to addr.
func dial(t testing.TB, addr string, version uint16, cfg *tls.Config) *connection {
	t.Helper()
	raw, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { raw.Close() })
	raw.SetDeadline(time.Now().Add(time.Minute))
	c := &connection{raw, raw.(*net.TCPConn)}
	if version != 0 {
		cfg = cfg.Clone()
		cfg.MinVersion, cfg.MaxVersion = version, version
		secure := tls.Client(raw, cfg)
		if err := secure.Handshake(); err != nil {
			t.Fatal(err)
		}
		c.Conn = secure
	}
	return c
}

// accept returns both ends of a connection, after the handshake.
func accept(t testing.TB, version uint16) (*connection, net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	server, client := tlsConfigs(t)
	wrapped := Listen(ln)
	if version != 0 {
		wrapped = ListenTLS(ln, server)
	}
	accepted := make(chan net.Conn, 1)
	go func() {
		c, err := wrapped.Accept()
		if err == nil && version != 0 {
			err = c.(*securePrefixConn).Handshake()
		}
		if err != nil {
			t.Error(err)
		}
		accepted <- c
	}()
	mine := dial(t, ln.Addr().String(), version, client)
	theirs := <-accepted
	t.Cleanup(func() { theirs.Close() })
	return mine, theirs
}

// eventually waits until ok returns true.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for late := time.After(time.Minute); !ok(); {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("%s: not within a minute", what)
		}
	}
}

// What the client's machine has not acknowledged counts as unsent, also when TLS has passed it on.
func TestUnsentBytesAreThoseOfTheSocket(t *testing.T) {
	for name, version := range versions {
		t.Run(name, func(t *testing.T) {
			client, server := accept(t, version)
			client.socket.SetReadBuffer(4 << 10)
			server.SetWriteDeadline(time.Now().Add(time.Minute))
			var sent int
			stop := make(chan struct{})
			go func() {
				defer close(stop)
				sent, _ = server.Write(make([]byte, 32<<20)) // ends when the connection is closed
			}()
			eventually(t, "a full buffer", func() bool { n, err := unsent(server); return n > 0 && err == nil })
			if acknowledged(server, time.Millisecond) {
				t.Error("unread bytes count as acknowledged")
			}
			server.Close() // does not wait for the client
			<-stop
			if sent == 32<<20 {
				t.Error("everything was sent")
			}
		})
	}
}

// A client that closes its side has left, whatever the message that says so, and what it has sent
// before is still read.
func TestAClientThatClosesItsSideHasLeft(t *testing.T) {
	for name, version := range versions {
		t.Run(name, func(t *testing.T) {
			client, server := accept(t, version)
			if LeftOn(server) || Gone(server) {
				t.Error("a silent client counts as gone")
			}
			io.WriteString(client, "word")
			first := make([]byte, 1)
			if _, err := io.ReadFull(server, first); err != nil || LeftOn(server) {
				t.Errorf("after a byte of four: %v, left: %v", err, LeftOn(server))
			}
			if c, ok := client.Conn.(*tls.Conn); ok {
				c.CloseWrite() // nothing of the socket
			} else {
				client.socket.CloseWrite()
			}
			rest := make([]byte, 3)
			if _, err := io.ReadFull(server, rest); err != nil || string(first)+string(rest) != "word" {
				t.Errorf("%s%s, %v", first, rest, err)
			}
			eventually(t, "the end", func() bool { return LeftOn(server) })
			if !Gone(server) {
				t.Error("Gone returns false")
			}
			if n, err := server.Read(first); n != 0 || !errors.Is(err, io.EOF) {
				t.Errorf("%d bytes, %v", n, err)
			}
		})
	}
}

// While another goroutine reads, the question does not wait for it.
func TestAReaderDoesNotDelayTheQuestion(t *testing.T) {
	client, server := accept(t, tls.VersionTLS13)
	read := make(chan error)
	go func() {
		_, err := server.Read(make([]byte, 1))
		read <- err
	}()
	for range 100 {
		if LeftOn(server) {
			t.Fatal("a silent client counts as gone")
		}
	}
	client.Close()
	if err := <-read; !errors.Is(err, io.EOF) {
		t.Errorf("read: %v", err)
	}
	if !LeftOn(server) {
		t.Error("a client that left counts as connected")
	}
}

// choppy is a connection whose writes time out, each after the next number of bytes: 0 is a client
// that reads nothing, all one that reads everything in time.
type choppy struct {
	net.Conn
	sizes []int
}

const all = 1 << 30

func (c *choppy) Write(p []byte) (int, error) {
	n := all
	if len(c.sizes) > 0 {
		n, c.sizes = c.sizes[0], c.sizes[1:]
	}
	if n >= len(p) {
		return c.Conn.Write(p)
	}
	if n, err := c.Conn.Write(p[:n]); err != nil {
		return n, err
	}
	return n, os.ErrDeadlineExceeded
}

// A slow client is waited for while it reads; a stalled one is not.
func TestTheWriteTimeoutRestartsWithProgress(t *testing.T) {
	tests := []struct {
		name  string
		sizes []int
		ok    bool
	}{
		{"slow", []int{1, 2000, 1, 1, 30_000, 1, 10_000}, true},
		{"slow between two records", []int{all, 0, 3, 40}, true},
		{"stalled", []int{0}, false},
		{"stalled later", []int{1, 2000, 0, 0}, false},
	}
	for name, version := range versions {
		for _, tt := range tests {
			t.Run(name+", "+tt.name, func(t *testing.T) {
				client, server := accept(t, version)
				raw := underlying(server)
				s, ok := raw.(*socket)
				if !ok {
					s = raw.(*secureConn).socket
				}
				s.Conn = &choppy{s.Conn, slices.Clone(tt.sizes)}
				cn := &Conn{raw: raw, write: time.Minute}
				sent := make(chan error, 1)
				message := bytes.Repeat([]byte("0123456789abcdef"), 8000)
				go func() {
					sent <- cn.deliver(message)
					cn.raw.Close()
				}()
				got, _ := io.ReadAll(client)
				if err := <-sent; (err == nil) != tt.ok || tt.ok && !bytes.Equal(got, message) {
					t.Errorf("%d of %d bytes, %v", len(got), len(message), err)
				}
			})
		}
	}
}

// answering serves a response of body and sends the reports of its delivery to the channel.
func answering(t *testing.T, body string, version uint16) (dialed func() *connection, reports chan bool) {
	t.Helper()
	reports = make(chan bool, 16)
	conns := New(Config{})
	app := fiber.New(fiber.Config{DisableStartupMessage: true, StreamRequestBody: true, ReduceMemoryUsage: true})
	app.Post("/", func(c *fiber.Ctx) error {
		conns.Answer(c, []byte(body), func() {}, func(whole bool) { reports <- whole })
		return nil
	})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, client := tlsConfigs(t)
	addr, wrapped := ln.Addr().String(), Listen(ln)
	if version != 0 {
		wrapped = ListenTLS(ln, server)
	}
	done := make(chan error, 1)
	go func() { done <- app.Listener(wrapped) }()
	t.Cleanup(func() {
		conns.Drain(t.Context())
		app.ShutdownWithTimeout(time.Minute)
		<-done
	})
	return func() *connection { return dial(t, addr, version, client) }, reports
}

const post = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"

// A response counts as delivered only if it reached a client that reads: the requests after it are
// served on the same connection.
func TestAReceivedAnswerIsReported(t *testing.T) {
	for name, version := range versions {
		t.Run(name, func(t *testing.T) {
			dialed, reports := answering(t, "word", version)
			c := dialed()
			r := bufio.NewReader(c)
			for range 3 {
				io.WriteString(c, post)
				res, err := http.ReadResponse(r, nil)
				if err != nil {
					t.Fatal(err)
				}
				if b, err := io.ReadAll(res.Body); err != nil || string(b) != "word" {
					t.Errorf("%q, %v", b, err)
				}
				res.Body.Close()
				if !<-reports {
					t.Error("a received response counts as lost")
				}
			}
			c.Close()
		})
	}
}

// A client that closes its connection without having read the response has not received it, also
// if its machine has acknowledged everything, and if it ends TLS in order.
func TestAnUnreadAnswerIsLost(t *testing.T) {
	for name, version := range versions {
		t.Run(name, func(t *testing.T) {
			dialed, reports := answering(t, strings.Repeat("word", 1000), version)
			for cut, how := range map[string]func(*connection){
				"close": func(c *connection) { c.Close() },
				"reset": func(c *connection) { c.socket.SetLinger(0); c.socket.Close() },
			} {
				c := dialed()
				io.WriteString(c, post)
				if !<-reports { // acknowledged by the machine
					t.Fatalf("%s: the response counts as lost before the end", cut)
				}
				how(c)
				select {
				case whole := <-reports:
					if whole {
						t.Errorf("%s: reported as delivered twice", cut)
					}
				case <-time.After(time.Minute):
					t.Errorf("%s: a lost response counts as delivered", cut)
				}
			}
		})
	}
}

// A client that cuts the connection before the response is sent has not received it.
func TestACutBeforeTheAnswerIsReported(t *testing.T) {
	for name, version := range versions {
		t.Run(name, func(t *testing.T) {
			client, server := accept(t, version)
			client.socket.SetReadBuffer(4 << 10)
			cn := &Conn{raw: underlying(server), write: time.Minute}
			done := make(chan error, 1)
			go func() { done <- cn.deliver(make([]byte, 64<<10)) }()
			if err := <-done; err != nil { // fits into the server's buffer
				t.Fatal(err)
			}
			client.socket.SetLinger(0)
			client.socket.Close()
			if acknowledged(cn.raw, time.Minute) {
				t.Error("a cut response counts as acknowledged")
			}
		})
	}
}

// A client without TLS learns what the port serves.
func TestAClientWithoutTLSGetsAnAnswer(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, _ := tlsConfigs(t)
	app := fiber.New(fiber.Config{DisableStartupMessage: true})
	done := make(chan error, 1)
	addr := ln.Addr().String()
	go func() { done <- app.Listener(ListenTLS(ln, server)) }()
	t.Cleanup(func() { app.Shutdown(); <-done })
	c := dial(t, addr, 0, nil)
	io.WriteString(c, "GET /")
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if b, _ := io.ReadAll(res.Body); res.StatusCode != 400 || !strings.Contains(string(b), "https://") {
		t.Errorf("%s %s", res.Status, b)
	}
}

// waiting counts the writes that may wait for the client.
type waiting struct {
	net.Conn
	writes int
}

func (w *waiting) below() net.Conn { return w.Conn }

func (w *waiting) Write(p []byte) (int, error) {
	w.writes++
	return w.Conn.Write(p)
}

// Close ends TLS in order if the client's machine takes the message, and does not wait for one that takes
// nothing.
func TestCloseDoesNotWait(t *testing.T) {
	for name, full := range map[string]bool{"idle": false, "a full buffer": true} {
		t.Run(name, func(t *testing.T) {
			client, server := accept(t, tls.VersionTLS13)
			s := underlying(server).(*secureConn)
			for err := error(nil); full && err == nil; {
				_, err = s.socket.writeNow(make([]byte, 1<<16))
			}
			w := &waiting{Conn: s.socket.Conn}
			s.socket.Conn = w
			s.Close()
			if w.writes > 0 {
				t.Errorf("%d writes wait for the client", w.writes)
			}
			if full {
				return
			}
			if n, err := client.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
				t.Errorf("the client read %d bytes, %v", n, err)
			}
		})
	}
}
