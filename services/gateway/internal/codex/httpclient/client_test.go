package httpclient_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/gateway/internal/codex/httpclient"
	"github.com/millrace/millrace/services/gateway/internal/codex/protocol"
)

// proxy is an egress proxy that knows names of servers and denies everything else.
type proxy struct {
	names map[string]string // address by host:port

	mu    sync.Mutex
	asked []string
}

func (p *proxy) dial(context.Context) (net.Conn, error) {
	here, there := net.Pipe()
	go p.serve(there)
	return here, nil
}

func (p *proxy) serve(c net.Conn) {
	defer c.Close()
	r := bufio.NewReader(c)
	req, err := http.ReadRequest(r)
	if err != nil || req.Method != http.MethodConnect {
		return
	}
	p.mu.Lock()
	p.asked = append(p.asked, req.Host)
	p.mu.Unlock()
	if req.Host == "broken:80" {
		io.WriteString(c, "HTTP/1.1 502 Bad Gateway\r\nX: y\r\n\r\n")
		return
	}
	to, ok := p.names[req.Host]
	if !ok {
		io.WriteString(c, "HTTP/1.1 403 Forbidden\r\n\r\n")
		return
	}
	out, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer out.Close()
	io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
	go func() {
		io.Copy(out, r)
		out.Close()
	}()
	io.Copy(c, out)
}

func request(url string, more func(p *protocol.HTTPParams)) *protocol.HTTPParams {
	p := &protocol.HTTPParams{Method: "GET", URL: url, RequestID: "r", RedirectPolicy: "follow"}
	if more != nil {
		more(p)
	}
	return p
}

func TestRequests(t *testing.T) {
	hold := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
		case "/inside":
			http.Redirect(w, r, "http://169.254.169.254/latest", http.StatusFound)
		case "/file":
			http.Redirect(w, r, "file:///etc/passwd", http.StatusFound)
		case "/hold":
			<-hold
		default:
			body, _ := io.ReadAll(r.Body)
			w.Header()["B"] = []string{"2", "1"}
			w.WriteHeader(http.StatusTeapot)
			fmt.Fprintf(w, "%s %s host=%s ua=%q x=%q te=%q ae=%q %s", r.Method, r.URL, r.Host, r.Header["User-Agent"], r.Header["X"], r.TransferEncoding, r.Header["Accept-Encoding"], body)
		}
	}))
	defer server.Close()
	defer close(hold)
	p := &proxy{names: map[string]string{"a.test:80": server.Listener.Addr().String()}}
	c := httpclient.New(p.dial, nil)
	body := protocol.Bytes("in")
	tests := []struct {
		name string
		req  *protocol.HTTPParams
		want string // the body
		kind kind.Kind
		text string // a part of the message
	}{
		{"get", request("http://a.test/x?y=z", nil), `GET /x?y=z host=a.test ua=[] x=[] te=[] ae=[] `, 0, ""},
		{"headers and a body", request("http://a.test/", func(p *protocol.HTTPParams) {
			p.Method, p.Body = "POST", &body
			p.Headers = []protocol.Header{{Name: "X", Value: "1"}, {Name: "x", Value: "2"}, {Name: "Host", Value: "other"}, {Name: "User-Agent", Value: "me"}, {Name: "Transfer-Encoding", Value: "chunked"}, {Name: "Content-Length", Value: "99"}}
		}), `POST / host=other ua=["me"] x=["1" "2"] te=[] ae=[] in`, 0, ""},
		{"a name that the rules deny", request("http://b.test/", nil), "", kind.Denied, "the sandbox may not connect to b.test:80"},
		{"loopback", request("http://127.0.0.1:1/", nil), "", kind.Denied, "127.0.0.1:1"},
		{"metadata by a redirect", request("http://a.test/inside", nil), "", kind.Denied, "169.254.169.254:80"},
		{"a file by a redirect", request("http://a.test/file", nil), "", kind.Unavailable, "unsupported protocol scheme"},
		{"too many redirects", request("http://a.test/loop", nil), "", kind.Unavailable, "more than 10 redirects"},
		{"a proxy that fails", request("http://broken/secret", nil), "", kind.Unavailable, "cannot connect to broken:80: 502 Bad Gateway"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			resp, err := c.Do(t.Context(), tt.req)
			if tt.text != "" {
				if !kind.Is(err, tt.kind) || !strings.Contains(kind.Message(err), tt.text) || strings.Contains(kind.Message(err), "secret") {
					t.Errorf("got %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			got, err := io.ReadAll(resp.Body)
			if string(got) != tt.want || err != nil || resp.Status != http.StatusTeapot {
				t.Errorf("got %d %s, %v", resp.Status, got, err)
			}
			if resp.Headers[0] != (protocol.Header{Name: "b", Value: "2"}) || resp.Headers[1].Value != "1" {
				t.Errorf("headers %v", resp.Headers)
			}
		})
	}
	t.Run("a redirect that is not followed", func(t *testing.T) {
		resp, err := c.Do(t.Context(), request("http://a.test/loop", func(p *protocol.HTTPParams) { p.RedirectPolicy = "stop" }))
		if err != nil || resp.Status != http.StatusFound {
			t.Errorf("got %+v, %v", resp, err)
		}
	})
	t.Run("a timeout", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if _, err := c.Do(ctx, request("http://a.test/hold", nil)); !kind.Is(err, kind.Deadline) {
			t.Errorf("got %v", err)
		}
	})
}

// TLS is spoken with the server, through the proxy.
func TestTLSIsChecked(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	server.Config.ErrorLog = nil
	server.StartTLS()
	defer server.Close()
	p := &proxy{names: map[string]string{"a.test:443": server.Listener.Addr().String(), "example.com:443": server.Listener.Addr().String()}}
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	if resp, err := httpclient.New(p.dial, roots).Do(t.Context(), request("https://example.com/", nil)); err != nil || resp.Status != http.StatusOK {
		t.Errorf("a known certificate: %v", err)
	}
	if _, err := httpclient.New(p.dial, nil).Do(t.Context(), request("https://a.test/", nil)); !kind.Is(err, kind.Unavailable) || !strings.Contains(kind.Message(err), "certificate") {
		t.Errorf("an unknown certificate: %v", err)
	}
}
