package httpconn

import (
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

// socket is the lowest connection of a client, below TLS. Its write deadline restarts whenever the
// client has read something, as long as the deadline was given in advance: a slow client is waited
// for, a stalled one is not. crypto/tls sends nothing more after a write that timed out, so that
// only the socket can wait.
type socket struct {
	net.Conn
	allowance atomic.Int64 // duration until the write deadline when it was set; 0: none, or it had passed
	progress  atomic.Bool  // the client has read something since the write deadline was set
	closing   atomic.Bool  // Write sends what fits into the socket's buffer and never waits
	instant   atomic.Bool  // Read returns what has arrived and never waits
}

// newSocket returns c as a socket, or c itself if it already has one.
func newSocket(c net.Conn) net.Conn {
	if _, ok := c.(wrapper); ok {
		return c
	}
	return &socket{Conn: c}
}

// wrapper is a connection of this package.
type wrapper interface{ below() net.Conn }

// lowest returns the connection below all those of this package: the operating system's.
func lowest(c net.Conn) net.Conn {
	for {
		w, ok := c.(wrapper)
		if !ok {
			return c
		}
		c = w.below()
	}
}

// rawConn returns the descriptor of c, and false if c is not a socket.
func rawConn(c net.Conn) (syscall.RawConn, bool, error) {
	sc, ok := lowest(c).(syscall.Conn)
	if !ok {
		return nil, false, nil
	}
	rc, err := sc.SyscallConn()
	return rc, true, err
}

func (s *socket) below() net.Conn { return s.Conn }

// SetDeadline sets both deadlines.
func (s *socket) SetDeadline(t time.Time) error {
	return errors.Join(s.SetReadDeadline(t), s.SetWriteDeadline(t))
}

// SetWriteDeadline sets the time until which the client must have read something.
func (s *socket) SetWriteDeadline(t time.Time) error {
	if s.closing.Load() {
		return nil
	}
	var d time.Duration
	if !t.IsZero() {
		d = max(time.Until(t), 0)
	}
	s.allowance.Store(int64(d))
	return s.setWriteDeadline(t)
}

func (s *socket) setWriteDeadline(t time.Time) error {
	s.progress.Store(false)
	err := s.Conn.SetWriteDeadline(t)
	if s.closing.Load() { // meanwhile
		s.Conn.SetWriteDeadline(past)
	}
	return err
}

// past ends reads and writes at once.
var past = time.Unix(1, 0)

// Write sends p.
func (s *socket) Write(p []byte) (int, error) {
	if s.closing.Load() {
		return s.writeNow(p)
	}
	for sent := 0; ; {
		n, err := s.Conn.Write(p[sent:])
		if sent += n; n > 0 {
			s.progress.Store(true)
		}
		d := time.Duration(s.allowance.Load())
		if err == nil || !s.progress.Load() || d == 0 || s.closing.Load() || !errors.Is(err, os.ErrDeadlineExceeded) {
			return sent, err
		}
		if err := s.setWriteDeadline(time.Now().Add(d)); err != nil {
			return sent, err
		}
	}
}

// Read reads what the client sends.
func (s *socket) Read(p []byte) (int, error) {
	if s.instant.Load() {
		return s.readNow(p)
	}
	return s.Conn.Read(p)
}

// writeNow sends p if all of it fits into the socket's buffer.
func (s *socket) writeNow(p []byte) (int, error) {
	return s.now(p, syscall.Write)
}

// readNow reads what has arrived. Without anything the error is os.ErrDeadlineExceeded.
func (s *socket) readNow(p []byte) (int, error) {
	n, err := s.now(p, syscall.Read)
	if n == 0 && err == nil && len(p) > 0 {
		return 0, io.EOF
	}
	return n, err
}

// now calls do once, for a descriptor that does not block.
func (s *socket) now(p []byte, do func(int, []byte) (int, error)) (n int, err error) {
	rc, ok, err := rawConn(s.Conn)
	if !ok || err != nil {
		return 0, errors.Join(os.ErrDeadlineExceeded, err)
	}
	cerr := rc.Control(func(fd uintptr) { n, err = do(int(fd), p) })
	switch n = max(n, 0); {
	case cerr != nil:
		return n, cerr
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.EINTR):
		return n, os.ErrDeadlineExceeded
	}
	return n, err
}

// shut ends a write in progress. From now on nothing waits for the client.
func (s *socket) shut() {
	s.closing.Store(true)
	s.Conn.SetWriteDeadline(past)
}

// CloseWrite closes the sending side.
func (s *socket) CloseWrite() error {
	if w, ok := s.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return errors.ErrUnsupported
}
