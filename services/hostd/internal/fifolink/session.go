package fifolink

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// session is the listener's end of a connection.
type session struct {
	net.Conn // the read side: an end of a pipe
	feed     net.Conn
	l        *Listener

	mu     sync.Mutex
	endErr error // result of Read at the end
}

// fail ends the connection after the data that was received.
func (s *session) fail(why error) {
	s.mu.Lock()
	s.endErr = why
	s.mu.Unlock()
	s.feed.Close()
}

// Read implements net.Conn. io.EOF: the dialer is gone, or dials again;
// io.ErrUnexpectedEOF: the stream is broken.
func (s *session) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	if errors.Is(err, io.EOF) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return n, s.endErr
	}
	return n, err
}

// Write implements net.Conn. It blocks while the stream is full; after the connection ends,
// it blocks until the next dialer reads.
func (s *session) Write(p []byte) (int, error) {
	if err := s.WriteBuffers([][]byte{p}); err != nil {
		return 0, err
	}
	return len(p), nil
}

// WriteBuffers writes all of bufs, which it modifies, in as few writes as possible.
func (s *session) WriteBuffers(bufs [][]byte) error {
	l := s.l
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current != s {
		return net.ErrClosed
	}
	return l.out.write(bufs)
}

// Close implements net.Conn. It does not block.
func (s *session) Close() error {
	if s.Conn.Close() == nil {
		go s.end() // it may wait for space in the stream
	}
	return nil
}

func (s *session) end() {
	l := s.l
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current == s {
		l.out.end() //nolint:errcheck // the error has no receiver
		l.current = nil
	}
}

// SetDeadline implements net.Conn, for reading only.
func (s *session) SetDeadline(t time.Time) error {
	return errors.Join(s.SetReadDeadline(t), s.SetWriteDeadline(t))
}

// SetWriteDeadline is not supported.
func (s *session) SetWriteDeadline(t time.Time) error {
	if t.IsZero() {
		return nil
	}
	return os.ErrNoDeadline
}

func (s *session) LocalAddr() net.Addr  { return addr{} }
func (s *session) RemoteAddr() net.Addr { return addr{} }
