package egress

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/mux"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/internal/ownaddr"
)

// Config configures a Server. The zero value of a field is its default.
type Config struct {
	Operator sandbox.Operator
	Resolver Resolver // default: the machine's, by Go's own client

	// Authority issues certificates for the domains of transforms; it may be missing
	// where no policy has any. Roots verify those hosts' own certificates; nil: the
	// machine's.
	Authority *Authority
	Roots     *x509.CertPool

	own func(netip.Addr) bool // reports whether an address is the machine's; set in tests
}

// Server serves the egress of all sandboxes of a host.
type Server struct {
	cfg   Config
	http  *http.Server
	conns *listener
	done  chan struct{} // closed when http has ended
}

const (
	headTimeout = 30 * time.Second // for a request's header, and for SOCKS's
	idleTimeout = time.Minute      // between two requests
	maxHead     = 64 << 10
	maxRequests = 16 // at a time per HTTP/2 connection

	// bodyWindow is how much of a request's body an HTTP/2 client may send before it
	// is read: the requests of one connection do not wait for each other.
	bodyWindow = 64 << 10
)

type connKey struct{}

// NewServer returns a server; Close ends it and all that it serves.
func NewServer(cfg Config) *Server {
	if cfg.Resolver == nil {
		cfg.Resolver = &net.Resolver{PreferGo: true}
	}
	if cfg.own == nil {
		cfg.own = ownaddr.Has
	}
	s := &Server{cfg: cfg, conns: &listener{conns: make(chan net.Conn), over: make(chan struct{})}, done: make(chan struct{})}
	s.http = &http.Server{
		Handler:           http.HandlerFunc(serveHTTP),
		ReadHeaderTimeout: headTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHead,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxRequests, MaxReceiveBufferPerStream: bodyWindow},
		ErrorLog:          log.New(io.Discard, "", 0),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if t, ok := c.(*tls.Conn); ok {
				c = t.NetConn()
			}
			return context.WithValue(ctx, connKey{}, c)
		},
	}
	go func() {
		defer close(s.done)
		s.http.Serve(s.conns) //nolint:errcheck // ends with Close
	}()
	return s
}

// Close ends the server; connections of routes end with their streams.
func (s *Server) Close() {
	s.http.Close()
	s.conns.Close()
	<-s.done
}

// client is a connection of a program in a sandbox.
type client struct {
	*mux.Stream
	route *Route
	first []byte // read already
}

// Read reads the buffered bytes, then from the stream.
func (c *client) Read(p []byte) (int, error) {
	if len(c.first) > 0 {
		n := copy(p, c.first)
		c.first = c.first[n:]
		return n, nil
	}
	return c.Stream.Read(p)
}

// Serve serves a connection to the proxy until it ends or is handed to another
// goroutine, for which Serve does not wait. The server owns the stream.
func (w *Route) Serve(st *mux.Stream) {
	st.Accept()
	c := &client{Stream: st, route: w, first: make([]byte, 1)}
	st.SetReadDeadline(time.Now().Add(headTimeout))
	if _, err := io.ReadFull(st, c.first); err != nil {
		st.Close()
		return
	}
	if c.first[0] == socksVersion {
		w.socks(c)
		return
	}
	st.SetReadDeadline(time.Time{})
	w.s.take(c)
}

// take passes a connection to the HTTP server.
func (s *Server) take(c net.Conn) {
	select {
	case s.conns.conns <- c:
	case <-s.conns.over:
		mux.Cut(c, kind.New(kind.Unavailable, "serve", "", "hostd is shutting down"))
	}
}

// listener passes connections from Serve to the http.Server.
type listener struct {
	conns chan net.Conn
	once  sync.Once
	over  chan struct{}
}

// Accept waits for the next connection.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.over:
		return nil, net.ErrClosed
	}
}

// Close ends Accept.
func (l *listener) Close() error {
	l.once.Do(func() { close(l.over) })
	return nil
}

// Addr returns the name of the proxy.
func (l *listener) Addr() net.Addr { return &net.UnixAddr{Name: "egress", Net: "unix"} }

// serveHTTP is the HTTP proxy.
func serveHTTP(w http.ResponseWriter, r *http.Request) {
	switch c := r.Context().Value(connKey{}).(type) {
	case *inspected:
		c.ServeHTTP(w, r)
	case *client:
		switch {
		case r.Method == http.MethodConnect:
			c.route.connectHTTP(w, r)
		case r.URL.Scheme == "http" && r.URL.Host != "":
			c.route.forward(w, r)
		default:
			http.Error(w, "millrace: this is a proxy: it serves CONNECT and requests for http URLs", http.StatusBadRequest)
		}
	default:
		http.Error(w, "", http.StatusInternalServerError)
	}
}

// useOf returns what the proxy does with a connection to a host.
func (w *Route) useOf(hostport string) use {
	return use(len(w.policy.Load().headers(hostOf(hostport))) > 0)
}

// connectHTTP serves CONNECT.
func (w *Route) connectHTTP(rw http.ResponseWriter, r *http.Request) {
	f, err := w.dial(r.Context(), r.Host, w.useOf(r.Host))
	if err != nil {
		fail(rw, r, err)
		return
	}
	conn, buffered, err := http.NewResponseController(rw).Hijack()
	if err != nil {
		f.Close()
		return
	}
	c, ok := conn.(*client)
	if !ok {
		conn.Close()
		f.Close()
		return
	}
	c.SetDeadline(time.Time{})
	if n := buffered.Reader.Buffered(); n > 0 {
		early, _ := buffered.Reader.Peek(n)
		c.first = append(append([]byte(nil), early...), c.first...)
	}
	if _, err := io.WriteString(c, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		mux.Cut(f, err)
	}
	w.carry(c, r.Host, f)
}

// carry serves a client that was promised a connection.
func (w *Route) carry(c *client, target string, f *flow) {
	if f.use == parsed {
		w.inspect(c, target, f)
		return
	}
	mux.Join(c, f)
}

// forward serves a plain request. Each request has a connection of its own, so that each
// is checked. It dials the host as the request has it: the transport would normalize
// some names to others.
func (w *Route) forward(rw http.ResponseWriter, r *http.Request) {
	target := net.JoinHostPort(r.URL.Hostname(), cmp.Or(r.URL.Port(), "80"))
	t := &http.Transport{
		DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: maxHead,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			f, err := w.dial(ctx, target, parsed)
			if err != nil {
				return nil, err
			}
			return f, nil
		},
	}
	w.pass(rw, r, hostOf(r.URL.Host), t, func(*http.Request) {})
}

// fail responds that a host could not be reached.
func fail(w http.ResponseWriter, _ *http.Request, err error) {
	status := http.StatusBadGateway
	switch kind.Of(err) {
	case kind.Denied:
		status = http.StatusForbidden
	case kind.Invalid:
		status = http.StatusBadRequest
	case kind.Deadline:
		status = http.StatusGatewayTimeout
	case kind.Exhausted:
		status = http.StatusServiceUnavailable
	}
	text := "the connection broke"
	var k *kind.Error
	if errors.As(err, &k) {
		text = kind.Message(err)
	}
	http.Error(w, "millrace: "+text, status)
}
