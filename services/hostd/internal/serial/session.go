package serial

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
	net.Conn // the reading half: an end of a pipe
	feed     net.Conn
	l        *Listener

	mu  sync.Mutex
	why error // what Read ends with
}

// fail ends the connection for whoever reads it, after what it has.
func (s *session) fail(why error) {
	s.mu.Lock()
	s.why = why
	s.mu.Unlock()
	s.feed.Close() //nolint:errcheck // never fails
}

// Read is net.Conn.Read. io.EOF: the dialer has gone, or dials anew;
// io.ErrUnexpectedEOF: the stream is broken.
func (s *session) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	if errors.Is(err, io.EOF) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return n, s.why
	}
	return n, err
}

// Write is net.Conn.Write. It waits as long as the stream is full; the end of the
// connection lets it go only when the next dialer reads.
func (s *session) Write(p []byte) (int, error) {
	if err := s.WriteBuffers([][]byte{p}); err != nil {
		return 0, err
	}
	return len(p), nil
}

// WriteBuffers writes all of bufs, which it uses up, in as few writes as can be.
func (s *session) WriteBuffers(bufs [][]byte) error {
	l := s.l
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.now != s {
		return net.ErrClosed
	}
	return l.out.write(bufs)
}

// Close is net.Conn.Close. It does not wait.
func (s *session) Close() error {
	if s.Conn.Close() == nil {
		go s.end() // it may wait for room in the stream
	}
	return nil
}

func (s *session) end() {
	l := s.l
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.now == s {
		l.out.end() //nolint:errcheck // nobody is left to tell
		l.now = nil
	}
}

// SetDeadline is net.Conn.SetDeadline, for reading only.
func (s *session) SetDeadline(t time.Time) error {
	return errors.Join(s.SetReadDeadline(t), s.SetWriteDeadline(t))
}

// SetWriteDeadline is net.Conn.SetWriteDeadline: there is none.
func (s *session) SetWriteDeadline(t time.Time) error {
	if t.IsZero() {
		return nil
	}
	return os.ErrNoDeadline
}

func (s *session) LocalAddr() net.Addr  { return addr{} }
func (s *session) RemoteAddr() net.Addr { return addr{} }
