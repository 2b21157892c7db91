package port_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/mux"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/httpconn"
	"github.com/millrace/millrace/services/gateway/internal/port"
	"github.com/millrace/millrace/services/gateway/internal/route"
	"github.com/millrace/millrace/services/gateway/internal/stream"
)

// channel returns one end of a pair of muxes that are connected directly, as they are by a
// tunnel.
func channel(t testing.TB, accept func(*mux.Stream)) *mux.Mux {
	wakes := [2]chan struct{}{make(chan struct{}, 1), make(chan struct{}, 1)}
	var ends [2]*mux.Mux
	for i := range ends {
		ends[i] = mux.New(mux.Config{Even: i == 0, Accept: accept, MaxStreams: 1000, Wake: func() {
			select {
			case wakes[i] <- struct{}{}:
			default:
			}
		}})
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	for i := range ends {
		wg.Go(func() {
			for {
				select {
				case <-wakes[i]:
				case <-done:
					return
				}
				for ends[i].Pending() {
					b := ends[i].Append(nil, 64<<10)
					for ty, payload, rest, ok := mux.Split(b); ok; ty, payload, rest, ok = mux.Split(rest) {
						if err := ends[1-i].Handle(ty, payload); err != nil {
							t.Error(err)
						}
					}
				}
			}
		})
	}
	t.Cleanup(func() {
		ends[0].Break(io.ErrClosedPipe)
		ends[1].Break(io.ErrClosedPipe)
		close(done)
		wg.Wait()
	})
	return ends[0]
}

// inside is a fake core with one sandbox and one server.
type inside struct {
	id   sandbox.ID
	mux  *mux.Mux
	port int

	net sandbox.Network

	opened chan *mux.Stream // if not nil

	mu     sync.Mutex
	dials  int
	paused bool // Wake fails
	wakes  int  // number of Wake calls
}

func (s *inside) Wake(context.Context, sandbox.ID) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wakes++
	return !s.paused, nil
}

func (s *inside) IngressClient(_ context.Context, id sandbox.ID, traffic string) (core.Principal, error) {
	if s.net.Private && traffic != "right" {
		return core.Principal{}, kind.New(kind.Denied, "", "", "")
	}
	return core.Principal{Sandbox: id}, nil
}

func (s *inside) Network(sandbox.ID) (sandbox.Network, bool) { return s.net, true }

func (s *inside) DialPort(ctx context.Context, id sandbox.ID, port int) (*mux.Stream, error) {
	switch {
	case id != s.id:
		return nil, kind.New(kind.NotFound, "", "", "")
	case port != s.port:
		return nil, kind.New(kind.Precondition, "", "", "")
	}
	s.mu.Lock()
	s.dials++
	s.mu.Unlock()
	st, err := s.mux.Open(ctx, "")
	if err == nil && s.opened != nil {
		s.opened <- st
	}
	return st, err
}

const id = "i0123456789abcdefghij"

// gateway returns the address of a gateway to a sandbox with a server on port 8080.
func gateway(t testing.TB, serve http.HandlerFunc) (addr string, in *inside) {
	t.Helper()
	return gatewayTo(t, httptest.NewServer(serve))
}

func gatewayTo(t testing.TB, server *httptest.Server) (addr string, in *inside) {
	t.Helper()
	t.Cleanup(server.Close)
	in = &inside{id: id, port: 8080}
	in.mux = channel(t, func(s *mux.Stream) {
		go func() {
			c, err := net.Dial("tcp", server.Listener.Addr().String())
			if err != nil {
				s.Abort(err)
				return
			}
			s.Accept()
			mux.Join(s, c.(*net.TCPConn))
		}()
	})
	streams := stream.New(stream.Config{WriteTimeout: 5 * time.Second})
	h := port.New(in, streams)
	app := fiber.New(fiber.Config{DisableStartupMessage: true, StreamRequestBody: true, ReadBufferSize: 16 << 10, RequestMethods: port.Methods(),
		ErrorHandler: route.ErrorHandler(discard())})
	app.Use(func(c *fiber.Ctx) error { return h.Serve(c, route.Of(c)) })
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- app.Listener(httpconn.Listen(ln)) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		streams.Drain(ctx)
		app.ShutdownWithTimeout(time.Second)
		<-done
		h.Close()
	})
	return ln.Addr().String(), in
}

func request(t testing.TB, method, addr, path string, body io.Reader) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+addr+path, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = "8080-" + id + ".sandbox.test"
	return req
}

func do(t testing.TB, req *http.Request) (*http.Response, string) {
	t.Helper()
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("after %d bytes: %v", len(b), err)
	}
	return res, string(b)
}

func TestRequestsArriveAsTheyWereSent(t *testing.T) {
	addr, in := gateway(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Set-Cookie", "a=1")
		w.Header().Add("Set-Cookie", "b=2")
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s|%s|%s|%q|%s", r.Method, r.RequestURI, r.Host, r.Header.Get("X-Own"), r.Header.Get("X-Forwarded-For"), body, r.Header.Get("E2b-Traffic-Access-Token"))
	})
	host := "8080-" + id + ".sandbox.test"
	for _, tt := range []struct{ method, path, body string }{
		{"GET", "/", ""},
		{"GET", "/a%2Fb/../c?x=1&y=%20", ""},
		{"GET", "//double", ""},
		{"DELETE", "/x", ""},
		{"POST", "/form", "body"},
		{"PUT", "/", "\x00\xff"},
		{"PROPFIND", "/dav/", "<propfind/>"},
		{"MKCOL", "/dav/new", ""},
		{"QUERY", "/", "select"},
	} {
		req := request(t, tt.method, addr, "", strings.NewReader(tt.body))
		req.URL.Opaque = tt.path
		if strings.HasPrefix(tt.path, "//") {
			req.URL.Opaque, req.URL.Path = "", tt.path
		}
		req.Header.Set("X-Own", "mine")
		req.Header.Set("E2b-Traffic-Access-Token", "secret")
		res, got := do(t, req)
		want := fmt.Sprintf("%s %s %s|mine|127.0.0.1|%q|", tt.method, tt.path, host, tt.body)
		if got != want || res.StatusCode != 200 || len(res.Header.Values("Set-Cookie")) != 2 {
			t.Errorf("got  %d %s %v\nwant %s", res.StatusCode, got, res.Header, want)
		}
	}
	if in.dials > 2 {
		t.Errorf("%d connections for sequential requests", in.dials)
	}
}

func TestTheHeadersOfTheSDKsNameAPort(t *testing.T) {
	addr, _ := gateway(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "there") })
	req := request(t, "GET", addr, "/", nil)
	req.Host = ""
	req.Header.Set("E2b-Sandbox-Id", id)
	req.Header.Set("E2b-Sandbox-Port", "8080")
	if _, got := do(t, req); got != "there" {
		t.Errorf("got %q", got)
	}
}

// Trailers of a request arrive, and a response keeps its server's reason phrase.
func TestRequestTrailersAndReasonPhrases(t *testing.T) {
	addr, _ := gateway(t, func(w http.ResponseWriter, r *http.Request) {
		announced := len(r.Trailer)
		body, err := io.ReadAll(r.Body)
		conn, rw, herr := w.(http.Hijacker).Hijack()
		if err != nil || herr != nil {
			t.Error(err, herr)
			return
		}
		defer conn.Close()
		text := fmt.Sprintf("%d %q %v %s", announced, body, r.Trailer, r.Header.Get("X-Sum"))
		fmt.Fprintf(rw, "HTTP/1.1 299 Odd But True\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
		rw.Flush()
	})
	req := request(t, "POST", addr, "/", io.MultiReader(strings.NewReader("body"))) // without a length: chunked
	req.Trailer = http.Header{"X-Sum": {"42"}, "X-Other": {"a", "b"}}
	res, got := do(t, req)
	if want := `2 "body" map[X-Other:[a b] X-Sum:[42]] `; got != want || res.Status != "299 Odd But True" {
		t.Errorf("%q: %s, want %s", res.Status, got, want)
	}
}

func TestLargeBodiesGoBothWays(t *testing.T) {
	addr, _ := gateway(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		w.Write(b)
	})
	want := make([]byte, 20<<20) // more than the limit of the gateway's own requests
	rand.Read(want)
	for _, chunked := range []bool{false, true} {
		req := request(t, "POST", addr, "/", bytes.NewReader(want))
		if chunked {
			req.ContentLength = -1
		}
		if _, got := do(t, req); got != string(want) {
			t.Errorf("chunked %v: %d bytes, want %d", chunked, len(got), len(want))
		}
	}
}

func TestEventsAreSentImmediately(t *testing.T) {
	next := make(chan string)
	addr, _ := gateway(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.(http.Flusher).Flush()
		for s := range next {
			io.WriteString(w, s)
			w.(http.Flusher).Flush()
		}
	})
	res, err := http.DefaultClient.Do(request(t, "GET", addr, "/", nil))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	for _, want := range []string{"data: 1\n\n", "data: 2\n\n"} {
		next <- want
		got := make([]byte, len(want))
		if _, err := io.ReadFull(res.Body, got); err != nil || string(got) != want {
			t.Fatalf("got %q, %v", got, err)
		}
	}
	close(next)
	if rest, err := io.ReadAll(res.Body); len(rest) > 0 || err != nil {
		t.Errorf("at the end: %q, %v", rest, err)
	}
}

func TestTrailersAndResponsesWithoutABody(t *testing.T) {
	addr, _ := gateway(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/204":
			w.WriteHeader(204)
		case "/304":
			w.Header().Set("Etag", `"x"`)
			w.WriteHeader(304)
		case "/empty":
		case "/head":
			w.Header().Set("Content-Length", "1000")
		default:
			w.Header().Set("Trailer", "X-Sum")
			io.WriteString(w, "body")
			w.Header().Set("X-Sum", "42")
		}
	})
	for _, tt := range []struct {
		method, path, body string
		status             int
		length             int64
	}{
		{"GET", "/204", "", 204, 0}, {"GET", "/304", "", 304, 0}, {"GET", "/empty", "", 200, 0}, {"HEAD", "/head", "", 200, 1000}, {"GET", "/trailer", "body", 200, -1},
	} {
		res, got := do(t, request(t, tt.method, addr, tt.path, nil))
		if res.StatusCode != tt.status || got != tt.body || res.ContentLength != tt.length && tt.status == 200 {
			t.Errorf("%s: %d %q, length %d", tt.path, res.StatusCode, got, res.ContentLength)
		}
		if tt.path == "/trailer" && res.Trailer.Get("X-Sum") != "42" {
			t.Errorf("trailer %v", res.Trailer)
		}
	}
}

// A response that its server breaks off, with or without a length, is an error for the
// client, never a short response that looks complete.
func TestATruncatedResponseIsAnError(t *testing.T) {
	addr, _ := gateway(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/length" {
			w.Header().Set("Content-Length", "100")
		}
		io.WriteString(w, "half")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	for _, path := range []string{"/length", "/chunked"} {
		res, err := http.DefaultClient.Do(request(t, "GET", addr, path, nil))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(res.Body)
		res.Body.Close()
		if string(got) != "half" || err == nil {
			t.Errorf("%s: %q, %v", path, got, err)
		}
	}
}

func TestADisconnectCancelsTheRequest(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	left := make(chan struct{})
	addr, _ := gateway(t, func(w http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
		close(left)
	})
	_, err := http.DefaultClient.Do(request(t, "GET", addr, "/", nil).WithContext(ctx))
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	select {
	case <-left:
	case <-time.After(time.Minute):
		t.Error("the server's request was not canceled")
	}
}

// The server switches to a protocol in which it replies to each line.
func TestSwitchedProtocols(t *testing.T) {
	addr, _ := gateway(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "lines" || r.Header.Get("Connection") != "Upgrade" {
			http.Error(w, "no", 400)
			return
		}
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		io.WriteString(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: lines\r\nX-Own: 1\r\n\r\n")
		rw.Flush()
		for {
			line, err := rw.ReadString('\n')
			if err != nil {
				io.WriteString(rw, "bye\n")
				rw.Flush()
				return
			}
			io.WriteString(rw, "got "+line)
			rw.Flush()
		}
	})
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Minute))
	// Data sent right after the request must arrive, too.
	fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: 8080-%s.x\r\nConnection: keep-alive, Upgrade\r\nUpgrade: lines\r\n\r\nearly\n", id)
	r := bufio.NewReader(c)
	res, err := http.ReadResponse(r, nil)
	if err != nil || res.StatusCode != 101 || res.Header.Get("X-Own") != "1" || res.Header.Get("Upgrade") != "lines" {
		t.Fatalf("%v, %v", res, err)
	}
	for i, want := range []string{"got early\n", "got line 1\n", "got line 2\n"} {
		if i > 0 {
			fmt.Fprintf(c, "line %d\n", i)
		}
		if got, err := r.ReadString('\n'); got != want || err != nil {
			t.Fatalf("got %q, %v", got, err)
		}
	}
	c.(*net.TCPConn).CloseWrite()
	if got, err := io.ReadAll(r); string(got) != "bye\n" || err != nil {
		t.Errorf("after a half close: %q, %v", got, err)
	}
}

// A port declared as HTTPS is contacted with TLS, with any certificate, also after a
// protocol switch. If it does not use TLS, there is no response.
func TestHTTPSPorts(t *testing.T) {
	serve := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			fmt.Fprintf(w, "TLS %v, %s, %s", r.TLS != nil, r.Host, r.Header.Get("X-Forwarded-Proto"))
			return
		}
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		io.WriteString(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: lines\r\n\r\n")
		rw.Flush()
		line, _ := rw.ReadString('\n')
		io.WriteString(rw, "got "+line)
		rw.Flush()
	})
	addr, in := gatewayTo(t, httptest.NewTLSServer(serve))
	in.net.HTTPSPorts = []int{1, 8080}
	if res, got := do(t, request(t, "GET", addr, "/", nil)); got != "TLS true, 8080-"+id+".sandbox.test, http" {
		t.Errorf("%d %q", res.StatusCode, got)
	}
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Minute))
	fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: 8080-%s.x\r\nConnection: Upgrade\r\nUpgrade: lines\r\n\r\nline\n", id)
	r := bufio.NewReader(c)
	if res, err := http.ReadResponse(r, nil); err != nil || res.StatusCode != 101 {
		t.Fatalf("%v, %v", res, err)
	}
	if got, err := io.ReadAll(r); string(got) != "got line\n" || err != nil {
		t.Errorf("%q, %v", got, err)
	}

	addr, in = gatewayTo(t, httptest.NewServer(serve))
	in.net.HTTPSPorts = []int{8080}
	if res, got := do(t, request(t, "GET", addr, "/", nil)); res.StatusCode != 502 || !strings.Contains(got, "did not answer") {
		t.Errorf("a server without TLS: %d %q", res.StatusCode, got)
	}
}

// Pipelined requests get their responses in order, and each goes to the sandbox that it names.
func TestPipelinedRequestsAreRoutedSeparately(t *testing.T) {
	addr, _ := gateway(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s", r.URL.Path, b)
	})
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Minute))
	var all strings.Builder
	const n = 50
	for i := range n {
		fmt.Fprintf(&all, "GET /%d HTTP/1.1\r\nHost: 8080-%s.x\r\n\r\n", i, id)
		fmt.Fprintf(&all, "POST /%d HTTP/1.1\r\nHost: 8080-%s.x\r\nContent-Length: 4\r\n\r\nbody", i, id)
		fmt.Fprintf(&all, "POST /%d HTTP/1.1\r\nHost: 8080-iother.x\r\nContent-Length: 4\r\n\r\nbody", i)
	}
	go io.WriteString(c, all.String())
	r := bufio.NewReader(c)
	for i := range n {
		for _, want := range []string{fmt.Sprintf("/%d ", i), fmt.Sprintf("/%d body", i), `{"sandboxId":"iother","message":"The sandbox was not found","code":502}`} {
			res, err := http.ReadResponse(r, nil)
			if err != nil {
				t.Fatalf("answer %d: %v", i, err)
			}
			got, err := io.ReadAll(res.Body)
			if string(got) != want || err != nil {
				t.Fatalf("answer %d: %q, %v; want %q", i, got, err, want)
			}
		}
	}
}

// A server that responds without reading on must not block the client forever.
func TestAnEarlyResponseToALargeBodyArrives(t *testing.T) {
	addr, _ := gateway(t, func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "too large", http.StatusRequestEntityTooLarge)
	})
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(30 * time.Second))
	fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: 8080-%s.x\r\nContent-Length: %d\r\n\r\n", id, 1<<30)
	go io.CopyN(c, zeroes{}, 1<<30)
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || res.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("got %v, %v", res, err)
	}
}

type zeroes struct{}

func (zeroes) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func BenchmarkRequest(b *testing.B) {
	addr, _ := gateway(b, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") })
	req := request(b, "GET", addr, "/", nil)
	for b.Loop() {
		do(b, req)
	}
}
