package httpconn

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"time"
)

// Listen wraps ln so that its connections outlive the requests in which streams take them
// over. The server closes a hijacked connection as soon as the hijack returns, and reuses
// its read buffer only then: with KeepHijackedConns each stream would cost it a new buffer.
func Listen(ln net.Listener) net.Listener { return listener{ln, nil} }

// ListenTLS is like [Listen] with TLS. The handshake happens when the server reads.
func ListenTLS(ln net.Listener, cfg *tls.Config) net.Listener { return listener{ln, cfg} }

type listener struct {
	net.Listener
	tls *tls.Config // nil: no TLS
}

const (
	minAcceptWait = 5 * time.Millisecond // first wait after Accept ran out of descriptors; doubles each time
	maxAcceptWait = time.Second          // longest such wait
)

// Accept waits for the next connection, also while the process is out of file descriptors
// or memory: the server would stop at that error, with all its connections.
func (l listener) Accept() (net.Conn, error) {
	for wait := minAcceptWait; ; wait = min(2*wait, maxAcceptWait) {
		c, err := l.Listener.Accept()
		if err == nil {
			if l.tls != nil {
				return lasting(newSecure(c, l.tls), nil), nil
			}
			return lasting(newSocket(c), nil), nil
		}
		if !isTemporary(err) {
			return nil, err
		}
		time.Sleep(wait) // a closed listener is noticed after it
	}
}

// isTemporary reports whether an error of Accept passes once resources are released.
func isTemporary(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOBUFS) || errors.Is(err, syscall.ENOMEM)
}

// prefixConn is a connection with bytes to be read before its own.
type prefixConn struct {
	net.Conn
	prefix []byte      // already read, to be read again
	taken  atomic.Bool // a stream has taken Conn over and closes it
}

// securePrefixConn is a prefixConn with TLS, as the server recognizes it.
type securePrefixConn struct {
	*prefixConn
	secure *secureConn
}

// Handshake performs the handshake.
func (h *securePrefixConn) Handshake() error { return h.secure.Handshake() }

// ConnectionState returns the state of TLS.
func (h *securePrefixConn) ConnectionState() tls.ConnectionState { return h.secure.ConnectionState() }

// lasting returns c as a connection that outlives its requests, with bytes to be read before its own.
func lasting(c net.Conn, prefix []byte) net.Conn {
	h := &prefixConn{Conn: c, prefix: prefix}
	if secure, ok := c.(*secureConn); ok {
		return &securePrefixConn{h, secure}
	}
	return h
}

// prefixed returns the prefixConn of a connection from Listen; nil if it is another one.
func prefixed(c net.Conn) *prefixConn {
	switch c := c.(type) {
	case *prefixConn:
		return c
	case *securePrefixConn:
		return c.prefixConn
	}
	return nil
}

func (h *prefixConn) below() net.Conn { return h.Conn }

// Read returns the prefix, then the bytes of the connection.
func (h *prefixConn) Read(p []byte) (int, error) {
	if len(h.prefix) == 0 {
		return h.Conn.Read(p)
	}
	n := copy(p, h.prefix)
	if h.prefix = h.prefix[n:]; len(h.prefix) == 0 {
		h.prefix = nil
	}
	return n, nil
}

// ReadFrom lets the connection read r itself where it can (io.ReaderFrom).
func (h *prefixConn) ReadFrom(r io.Reader) (int64, error) { return io.Copy(h.Conn, r) }

// Close closes the connection, unless a stream has taken it over.
func (h *prefixConn) Close() error {
	if h.taken.Load() {
		return nil
	}
	return h.Conn.Close()
}

// underlying returns the connection that prefixConn wraps, or c.
func underlying(c net.Conn) net.Conn {
	if h := prefixed(c); h != nil {
		return h.Conn
	}
	return c
}
