package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/mux"
	"github.com/millrace/millrace/events/sandbox"
)

// silentResolver is a resolver that does not respond until its context ends, and then returns its cause.
type silentResolver struct {
	started chan struct{}
	ended   chan error
}

func newSilence() *silentResolver {
	return &silentResolver{make(chan struct{}, maxFlows+1), make(chan error, maxFlows+1)}
}

func (s *silentResolver) LookupNetIP(ctx context.Context, _, _ string) ([]netip.Addr, error) {
	s.started <- struct{}{}
	<-ctx.Done()
	s.ended <- ctx.Err()
	return nil, ctx.Err()
}

func TestDialsAreBounded(t *testing.T) {
	r := newSilence()
	w, _ := newRoute(t, &sandbox.Network{Internet: true}, "", r)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range maxFlows {
		wg.Go(func() { w.dial(ctx, "slow.test:80", raw) })
	}
	for range maxFlows {
		<-r.started
	}
	if _, err := w.dial(ctx, "slow.test:80", raw); !kind.Is(err, kind.Exhausted) {
		t.Errorf("beyond the limit: %v", err)
	}
	cancel()
	wg.Wait()
	if _, err := w.dial(ctx, "127.0.0.1:80", raw); !kind.Is(err, kind.Denied) {
		t.Errorf("after they have ended: %v", err)
	}
}

func TestOpenConnectionsAreBounded(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts its connections, and no server does
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	w, dial := newRoute(t, &sandbox.Network{Internet: true}, loopback, nil)
	var flows []*flow
	for range maxFlows {
		f, err := w.dial(t.Context(), ln.Addr().String(), raw)
		if err != nil {
			t.Fatalf("connection %d: %v", len(flows)+1, err)
		}
		defer f.Close()
		flows = append(flows, f)
	}
	if _, err := w.dial(t.Context(), ln.Addr().String(), raw); !kind.Is(err, kind.Exhausted) {
		t.Errorf("beyond the limit: %v", err)
	}
	if status, got, err := get(t, through(t, dial, "http"), "http://"+ln.Addr().String()); status != http.StatusServiceUnavailable || err != nil {
		t.Errorf("a request: %d %q, %v", status, got, err)
	}
	flows[0].Close()
	flows[0].Close() // frees one connection, not two
	for i, full := range []bool{false, true} {
		f, err := w.dial(t.Context(), ln.Addr().String(), raw)
		if kind.Is(err, kind.Exhausted) != full {
			t.Errorf("connection %d after one was closed: %v", i+1, err)
		}
		if err == nil {
			defer f.Close()
		}
	}
}

// The end of the client's stream cancels its dial.
func TestDialEndsWithItsStream(t *testing.T) {
	for protocol, hello := range map[string]string{
		"SOCKS":   "\x05\x01\x00\x05\x01\x00\x03\x09slow.test\x00\x50",
		"CONNECT": "CONNECT slow.test:80 HTTP/1.1\r\nHost: slow.test:80\r\n\r\n",
	} {
		t.Run(protocol, func(t *testing.T) {
			r := newSilence()
			_, dial := newRoute(t, &sandbox.Network{Internet: true}, "", r)
			c := dial()
			io.WriteString(c, hello)
			<-r.started
			c.(*mux.Stream).Abort(nil)
			if err := <-r.ended; !errors.Is(err, context.Canceled) {
				t.Errorf("the dial ended with %v", err)
			}
		})
	}
}

// What a SOCKS client sends before the proxy's reply reaches the server.
func TestSOCKSClientsMaySendEarly(t *testing.T) {
	s := hello(t)
	_, dial := newRoute(t, &sandbox.Network{Internet: true}, loopback, nil)
	port := netip.MustParseAddrPort(s.Listener.Addr().String()).Port()
	c := dial()
	fmt.Fprintf(c, "\x05\x01\x00\x05\x01\x00\x01\x7f\x00\x00\x01%s", []byte{byte(port >> 8), byte(port)})
	io.WriteString(c, "GET /x HTTP/1.0\r\n\r\n")
	c.(*mux.Stream).CloseWrite()
	got, err := io.ReadAll(c)
	if len(got) < 12 || string(got[12:27]) != "HTTP/1.0 200 OK" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

func TestRequestsOfAnInspectedConnectionAreBounded(t *testing.T) {
	var waiting atomic.Int32
	full, over := make(chan struct{}), make(chan struct{})
	s := newSite(t)
	slow := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/first" && waiting.Add(1) == maxRequests+1 {
			close(full)
		}
		if r.URL.Path != "/first" {
			<-over
		}
	}))
	slow.EnableHTTP2 = true
	slow.StartTLS()
	defer slow.Close()
	s.secure = slow
	n := transformed("example.com", "X-Own", "ours")
	in := inside(t, &n, s)
	var connections atomic.Int32
	program := insider{in.route, func() net.Conn { connections.Add(1); return in.dial() }, in.tls}
	c := program.client(t, "http", true)
	url := "https://example.com:" + portOf(slow.URL)
	if status, _, err := get(t, c, url+"/first"); status != http.StatusOK || err != nil { // the client receives the limit
		t.Fatal(status, err)
	}
	var wg sync.WaitGroup
	for range maxRequests + 1 {
		wg.Go(func() {
			if status, _, err := get(t, c, url); status != http.StatusOK || err != nil {
				t.Error(status, err)
			}
		})
	}
	<-full
	if got := connections.Load(); got < 2 {
		t.Errorf("%d requests at a time on %d connection", maxRequests+1, got)
	}
	close(over)
	wg.Wait()
}

// A host's response is not buffered without limit for a client that does not read it.
func TestUnreadResponsesAreBounded(t *testing.T) {
	sent := make(chan int)
	s := newSite(t)
	flood := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		part, n := make([]byte, 16<<10), 0
		for {
			http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Second))
			k, err := w.Write(part)
			if n += k; err != nil {
				sent <- n
				return
			}
		}
	}))
	flood.EnableHTTP2 = true
	flood.StartTLS()
	defer flood.Close()
	s.secure = flood
	n := transformed("example.com", "X-Own", "ours")
	in := inside(t, &n, s)
	c := in.client(t, "http", true)
	const window = 64 << 10
	c.Transport.(*http.Transport).HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: window}
	res, err := c.Get("https://example.com:" + portOf(flood.URL))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if got, most := <-sent, answerWindow+window+256<<10; got > most {
		t.Errorf("%d bytes were read, limit %d", got, most)
	}
}

func TestRequestsOfASandboxAreBounded(t *testing.T) {
	s := newSite(t)
	n := transformed("example.com", "X-Own", "ours")
	in := inside(t, &n, s)
	for range maxFlows {
		if err := in.route.beginRequest(); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []int{http.StatusServiceUnavailable, http.StatusOK, http.StatusOK} {
		for _, u := range []string{"https://example.com:" + portOf(s.secure.URL), "http://other.test:" + portOf(s.plain.URL)} {
			if status, got, err := get(t, in.client(t, "http", true), u); status != want || err != nil {
				t.Errorf("%s: %d %q, %v; want %d", u, status, got, err, want)
			}
		}
		if want == http.StatusServiceUnavailable {
			in.route.endRequest()
		}
	}
}

// A request whose client has gone keeps no connection to a host that reads nothing.
func TestRequestEndsWithItsStream(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts connections, and no server reads
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	w, dial := newRoute(t, &sandbox.Network{Internet: true}, loopback, nil)
	c := dial()
	fmt.Fprintf(c, "POST http://%s/ HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n", ln.Addr())
	full := make(chan struct{})
	go func() {
		defer close(full)
		for part := make([]byte, 256<<10); ; {
			c.SetWriteDeadline(time.Now().Add(time.Second))
			if _, err := c.Write(part); err != nil {
				return
			}
		}
	}()
	<-full
	if sent, _ := w.Used(); w.open() != 1 || sent < 100<<10 {
		t.Fatalf("%d connections, %d bytes sent", w.open(), sent)
	}
	c.(*mux.Stream).Abort(nil)
	for late := time.After(20 * time.Second); w.open() > 0; {
		select {
		case <-late:
			t.Fatal("the connection remains open")
		case <-time.After(time.Millisecond):
		}
	}
}

func (w *Route) open() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.flows)
}
