package httpconn

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	handshakeTimeout = 10 * time.Second // how long a client may read nothing of a handshake
	resetTimeout     = time.Second      // how long a reset may arrive after the client has ended TLS
)

// secureConn is a connection with TLS. What a client has received is a question to the socket
// below, where bytes that TLS has passed on but the client's machine has not acknowledged count.
// Whether the client has closed its side is a question to both: the end of TLS is a message that
// looks like any other until it is decrypted.
type secureConn struct {
	*tls.Conn
	socket *socket

	reading sync.Mutex  // held during a read
	ahead   []byte      // guarded by reading: read by hasLeft, not yet by Read
	ended   atomic.Bool // the client has closed its side, or the connection failed
}

func newSecure(c net.Conn, cfg *tls.Config) *secureConn {
	s := &socket{Conn: c}
	return &secureConn{Conn: tls.Server(s, cfg), socket: s}
}

func (s *secureConn) below() net.Conn { return s.socket }

// Handshake performs the handshake unless it has been done.
func (s *secureConn) Handshake() error {
	if s.ConnectionState().HandshakeComplete {
		return nil
	}
	if err := s.socket.SetWriteDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return err
	}
	if err := s.HandshakeContext(context.Background()); err != nil {
		if bad, ok := errors.AsType[tls.RecordHeaderError](err); ok && bad.Conn != nil && isHTTP(bad.RecordHeader) {
			io.WriteString(bad.Conn, notTLS) //nolint:errcheck // best effort
			s.socket.CloseWrite()            //nolint:errcheck // as above
		}
		return err
	}
	return s.socket.SetWriteDeadline(time.Time{})
}

// notTLS is the response to a client without TLS.
const notTLS = "HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain\r\n\r\nthis port serves TLS: use https:// in the URL\n"

// isHTTP reports whether the first bytes of a connection are a method of HTTP.
func isHTTP(first [5]byte) bool {
	switch string(first[:]) {
	case "GET /", "HEAD ", "POST ", "PUT /", "PATCH", "DELET", "OPTIO":
		return true
	}
	return false
}

// Read reads what the client sends.
func (s *secureConn) Read(p []byte) (int, error) {
	s.reading.Lock()
	defer s.reading.Unlock()
	if len(s.ahead) > 0 {
		n := copy(p, s.ahead)
		s.ahead = s.ahead[n:]
		return n, nil
	}
	return s.read(p)
}

// read is Read; the caller holds reading.
func (s *secureConn) read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		s.ended.Store(true)
	}
	return n, err
}

// hasLeft reports whether the client has closed its side, as far as has arrived. While another
// goroutine reads, which would take what has arrived, the end of the socket is enough.
func (s *secureConn) hasLeft() bool {
	if !s.reading.TryLock() {
		return s.ended.Load() || disconnected(s.socket)
	}
	defer s.reading.Unlock()
	switch {
	case len(s.ahead) > 0:
		return false
	case s.ended.Load():
		return true
	}
	s.socket.instant.Store(true)
	defer s.socket.instant.Store(false)
	b := make([]byte, 1)
	n, _ := s.read(b)
	s.ahead = b[:n]
	return s.ended.Load()
}

// wasReset reports whether the client's machine discarded sent bytes, after a read that failed with
// err. A client that closes its connection without having read the response ends TLS first, so that
// the reset follows the end.
func wasReset(conn net.Conn, err error) bool {
	s, ok := conn.(*secureConn)
	if !ok || !errors.Is(err, io.EOF) {
		return errors.Is(err, syscall.ECONNRESET)
	}
	s.socket.SetReadDeadline(time.Now().Add(resetTimeout))
	_, err = io.Copy(io.Discard, s.socket)
	return errors.Is(err, syscall.ECONNRESET)
}

// CloseWrite closes the sending side, of TLS and of the socket.
func (s *secureConn) CloseWrite() error {
	return errors.Join(s.Conn.CloseWrite(), s.socket.CloseWrite())
}

// Close closes the connection. It does not wait for the client: the message that ends TLS is lost
// if it does not fit into the socket's buffer.
func (s *secureConn) Close() error {
	s.socket.shut()
	return s.Conn.Close()
}
