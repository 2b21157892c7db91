package egress

import (
	"context"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/events/mux"
	"github.com/millrace/millrace/events/sandbox"
)

// inspected is a connection to a host whose requests are transformed: the proxy is
// the server of its client, and a client of the host. Only HTTP is possible,
// within TLS or not: bytes that cannot be parsed
// cannot be transformed, and must not pass as if they were.
type inspected struct {
	*client
	name   string // name of the host
	target string // host and port
	scheme string

	first     atomic.Pointer[flow] // a connection to the host that is not used yet
	transport *http.Transport
}

const (
	tlsHandshake = 22 // the first byte of TLS
	webSocket    = "websocket"

	// answerWindow is how much of a response an HTTP/2 host may send before it is
	// read: all 256 of a sandbox take 64 MiB. HTTP/1 responses wait in the kernel.
	answerWindow = 256 << 10
)

// inspect serves a client that was promised a connection to a host. It waits for
// the client's first byte.
func (w *Route) inspect(c *client, target string, f *flow) {
	in := &inspected{client: c, name: f.name, target: target, scheme: "http"}
	in.first.Store(f)
	in.transport = &http.Transport{
		DisableCompression: true, ForceAttemptHTTP2: true, MaxResponseHeaderBytes: maxHead, IdleConnTimeout: idleTimeout,
		TLSHandshakeTimeout: dialTimeout, ExpectContinueTimeout: time.Second,
		TLSClientConfig: &tls.Config{ServerName: f.name, RootCAs: w.s.cfg.Roots, MinVersion: tls.VersionTLS12},
		DialContext:     in.dial,
		HTTP2:           &http.HTTP2Config{MaxReceiveBufferPerStream: answerWindow},
	}
	if len(c.first) == 0 {
		c.first = make([]byte, 1)
		c.SetReadDeadline(time.Now().Add(headTimeout))
		if _, err := io.ReadFull(c.Stream, c.first); err != nil {
			in.Close()
			return
		}
		c.SetReadDeadline(time.Time{})
	}
	if c.first[0] != tlsHandshake {
		w.s.take(in)
		return
	}
	in.scheme = "https"
	w.s.take(tls.Server(in, &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return w.s.cfg.Authority.leaf(in.name) },
	}))
}

// dial connects to the host, as often as the transport needs it.
func (in *inspected) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	if f := in.first.Swap(nil); f != nil {
		return f, nil
	}
	f, err := in.route.dial(ctx, in.target, parsed)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Close closes the client's connection, and unused ones to the host.
func (in *inspected) Close() error {
	if f := in.first.Swap(nil); f != nil {
		mux.Cut(f, nil)
	}
	in.transport.CloseIdleConnections()
	return in.client.Close()
}

// ServeHTTP forwards a request, transformed. A request for another host than was
// checked is refused: the transform's values are for this host, not for others
// at its address.
func (in *inspected) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if hostOf(r.Host) != in.name || r.Method == http.MethodConnect {
		http.Error(w, "millrace: the connection is for "+in.name, http.StatusMisdirectedRequest)
		return
	}
	in.route.pass(w, r, in.name, in.transport, func(out *http.Request) { out.URL.Scheme, out.URL.Host = in.scheme, in.target })
}

// pass forwards a request to the host of that name, with the headers of its
// transform; if a secret or token that they need is missing, it is not sent. A transformed
// request may switch only to WebSocket, in which no other requests can be sent.
func (w *Route) pass(rw http.ResponseWriter, r *http.Request, name string, t http.RoundTripper, change func(*http.Request)) {
	if err := w.beginRequest(); err != nil {
		fail(rw, r, err)
		return
	}
	defer w.endRequest()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	// The server notices that the client has gone only when it reads from it, which it does not
	// while the body waits for a host that does not read.
	if c, ok := ctx.Value(connKey{}).(interface{ AfterBreak(f func()) (stop func()) }); ok {
		defer c.AfterBreak(cancel)()
	}
	var set []header
	all := w.policy.Load().headers(name)
	if to := r.Header.Get("Upgrade"); to != "" && len(all) > 0 && !strings.EqualFold(to, webSocket) {
		r.Header.Del("Upgrade") // a server need not switch (RFC 9110, 7.8)
	}
	for _, h := range all {
		value, err := w.markers.Expand(h.value)
		if err != nil {
			fail(rw, r, err)
			return
		}
		set = append(set, header{h.name, value})
	}
	p := httputil.ReverseProxy{
		Transport: t, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0), ErrorHandler: fail,
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.Out.Host = pr.In.Host
			change(pr.Out)
			transform(pr.Out.Header, set)
		},
	}
	p.ServeHTTP(rw, r.WithContext(ctx))
}

// hostOf returns the name in a Host or an authority; empty if it has none.
func hostOf(hostport string) string {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = hostport
	}
	name, ok := sandbox.CleanName(host)
	if !ok {
		return ""
	}
	return name
}

// transform sets headers.
func transform(h http.Header, set []header) {
	for _, s := range set {
		for name := range h { // also in spellings that HTTP/1 permits and Go does not
			if strings.EqualFold(name, s.name) {
				delete(h, name)
			}
		}
		h[s.name] = []string{s.value}
	}
}
