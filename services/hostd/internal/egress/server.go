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

// Config says how a Server works. The zero value of a field is its default.
type Config struct {
	Operator sandbox.Operator
	Resolver Resolver // default: the machine's, by Go's own client

	// Authority makes certificates for the domains of transforms; it may be missing
	// where no policy has any. Roots are what those hosts' own certificates are held
	// to; nil: the machine's.
	Authority *Authority
	Roots     *x509.CertPool

	own func(netip.Addr) bool // whether an address is the machine's; in tests
}

// Server serves the ways out of all sandboxes of a host.
type Server struct {
	cfg   Config
	http  *http.Server
	conns *listener
	done  chan struct{} // closed when http has ended
}

const (
	headTimeout = 30 * time.Second // of a request's head, and of SOCKS's
	idleTimeout = time.Minute      // between two requests
	maxHead     = 64 << 10
	maxRequests = 16 // at a time on a connection of HTTP/2

	// bodyWindow is how much of a request's body a client that speaks HTTP/2 may send before it
	// is read: those of one connection do not wait for each other.
	bodyWindow = 64 << 10
)

// ResolverAt asks the name server at IP:PORT, besides the machine's own file of
// hosts.
func ResolverAt(addr string) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, addr)
	}}
}

type connKey struct{}

// NewServer gives a server; Close ends it and all that it serves.
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
		s.http.Serve(s.conns) //nolint:errcheck // it ends with Close
	}()
	return s
}

// Close ends the server; the connections of ways end with their streams.
func (s *Server) Close() {
	s.http.Close()  //nolint:errcheck // nothing of it fails
	s.conns.Close() //nolint:errcheck // it cannot fail
	<-s.done
}

// client is a program in a sandbox that uses its way out.
type client struct {
	*mux.Stream
	way   *Way
	first []byte // read already
}

// Read reads what was read already, then what comes.
func (c *client) Read(p []byte) (int, error) {
	if len(c.first) > 0 {
		n := copy(p, c.first)
		c.first = c.first[n:]
		return n, nil
	}
	return c.Stream.Read(p)
}

// Serve serves a connection to the proxy until it ends, or hands it on; it does
// not wait for what it hands on. The stream is the server's.
func (w *Way) Serve(st *mux.Stream) {
	st.Accept()
	c := &client{Stream: st, way: w, first: make([]byte, 1)}
	st.SetReadDeadline(time.Now().Add(headTimeout)) //nolint:errcheck // it cannot fail
	if _, err := io.ReadFull(st, c.first); err != nil {
		st.Close() //nolint:errcheck // it said nothing
		return
	}
	if c.first[0] == socksVersion {
		w.socks(c)
		return
	}
	st.SetReadDeadline(time.Time{}) //nolint:errcheck // it cannot fail
	w.s.take(c)
}

// take has the HTTP server serve a connection.
func (s *Server) take(c net.Conn) {
	select {
	case s.conns.conns <- c:
	case <-s.conns.over:
		mux.Cut(c, kind.New(kind.Unavailable, "serve", "", "the host's daemon ends"))
	}
}

// listener gives the http.Server what Serve was given.
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

// Addr names the proxy.
func (l *listener) Addr() net.Addr { return &net.UnixAddr{Name: "egress", Net: "unix"} }

// serveHTTP is the HTTP proxy.
func serveHTTP(w http.ResponseWriter, r *http.Request) {
	switch c := r.Context().Value(connKey{}).(type) {
	case *inspected:
		c.ServeHTTP(w, r)
	case *client:
		switch {
		case r.Method == http.MethodConnect:
			c.way.connectHTTP(w, r)
		case r.URL.Scheme == "http" && r.URL.Host != "":
			c.way.forward(w, r)
		default:
			http.Error(w, "millrace: this is a proxy: it serves CONNECT and requests for http URLs", http.StatusBadRequest)
		}
	default:
		http.Error(w, "", http.StatusInternalServerError)
	}
}

// useOf is what becomes of a connection to a host.
func (w *Way) useOf(hostport string) use {
	return use(len(w.policy.Load().headers(hostOf(hostport))) > 0)
}

// connectHTTP serves CONNECT.
func (w *Way) connectHTTP(rw http.ResponseWriter, r *http.Request) {
	f, err := w.dial(r.Context(), r.Host, w.useOf(r.Host))
	if err != nil {
		fail(rw, r, err)
		return
	}
	conn, buffered, err := http.NewResponseController(rw).Hijack()
	if err != nil {
		f.Close() //nolint:errcheck // nobody uses it
		return
	}
	c, ok := conn.(*client)
	if !ok {
		conn.Close() //nolint:errcheck // it cannot be
		f.Close()    //nolint:errcheck // nobody uses it
		return
	}
	c.SetDeadline(time.Time{}) //nolint:errcheck // it cannot fail
	if n := buffered.Reader.Buffered(); n > 0 {
		early, _ := buffered.Reader.Peek(n) //nolint:errcheck // they are there
		c.first = append(append([]byte(nil), early...), c.first...)
	}
	if _, err := io.WriteString(c, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		mux.Cut(f, err)
	}
	w.carry(c, r.Host, f)
}

// carry serves a client that was promised a connection.
func (w *Way) carry(c *client, target string, f *flow) {
	if f.use == read {
		w.inspect(c, target, f)
		return
	}
	mux.Join(c, f) //nolint:errcheck // both ends know
}

// forward serves a plain request. Each has a connection of its own, so that each
// is judged. What is dialed is the host as the request has it: the transport would make
// another name's letters of some.
func (w *Way) forward(rw http.ResponseWriter, r *http.Request) {
	target := net.JoinHostPort(r.URL.Hostname(), cmp.Or(r.URL.Port(), "80"))
	t := &http.Transport{
		DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: maxHead,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			f, err := w.dial(ctx, target, read)
			if err != nil {
				return nil, err
			}
			return f, nil
		},
	}
	w.pass(rw, r, hostOf(r.URL.Host), t, func(*http.Request) {})
}

// fail answers that something could not be reached.
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
