package fifolink

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// A stream without a peer may read as ended until one connects, as a virtio-serial port
// does.
const (
	firstPause = time.Millisecond
	lastPause  = 50 * time.Millisecond
)

// Listener is the end that is dialed. It has one connection at a time. When the next one is
// dialed the connection ends; for that it must be read from or closed.
type Listener struct {
	rw    io.ReadWriteCloser
	ready chan net.Conn // next result of Accept
	done  chan struct{} // closed by Close
	once  sync.Once
	aside func(nonce []byte) error

	reader reader

	mu      sync.Mutex // held while writing
	current *session   // the session that may write; nil: none
	out     writer
}

var _ net.Listener = (*Listener)(nil)

// Listen accepts the connections that are dialed at the other end of rw, and takes
// ownership of rw.
func Listen(rw io.ReadWriteCloser) *Listener { return ListenAside(rw, nil) }

// ListenAside is Listen with another program that answers DialAside: other is called for
// each DialAside, and the program that it starts writes to the stream what Resume writes
// for the nonce. Until other returns, nothing else writes to or reads from the stream; an
// error of other breaks the connection. If other is nil, DialAside is not answered.
func ListenAside(rw io.ReadWriteCloser, other func(nonce []byte) error) *Listener {
	l := &Listener{rw: rw, aside: other, ready: make(chan net.Conn, 1), done: make(chan struct{}), out: writer{w: rw}}
	go l.read()
	return l
}

// Accept implements net.Listener. A connection that was not accepted before the next one
// began is dropped.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.ready:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close ends Accept and closes the stream. The current connection fails.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.done) })
	return l.rw.Close()
}

// Addr implements net.Listener.
func (l *Listener) Addr() net.Addr { return addr{} }

// read reads the stream for all connections, until it fails.
func (l *Listener) read() {
	var s *session
	end := func(err error) {
		if s != nil {
			s.fail(err)
		}
		s = nil
	}
	defer func() { end(net.ErrClosed) }()
	for {
		r, err := l.reader.next(l.fill)
		if err != nil {
			return
		}
		switch r.kind {
		case kindSync:
			end(io.EOF)
			if r.to == aside {
				l.answerAside(r.data)
				continue
			}
			s = l.begin(r.data)
		case kindData:
			if s != nil {
				s.feed.Write(r.data) //nolint:errcheck // it was closed and is not read any more
			}
		case kindEnd:
			end(io.EOF)
		default:
			end(io.ErrUnexpectedEOF)
		}
	}
}

// fill reads more of the stream.
func (l *Listener) fill(b *buffer) error {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := b.fill(l.rw)
		if !errors.Is(err, io.EOF) {
			return err
		}
		select {
		case <-time.After(pause):
		case <-l.done:
			return net.ErrClosed
		}
	}
}

// begin replaces the current connection by a new one.
func (l *Listener) begin(nonce []byte) *session {
	ours, feed := net.Pipe()
	s := &session{Conn: ours, feed: feed, l: l}
	answer, sum := hello(kindOpen, version, nonce)
	l.mu.Lock() // a blocked writer is unblocked by the dialer, which reads
	l.current = s
	l.out = writer{w: l.rw, sum: sum, buf: answer}
	l.out.flush()
	l.mu.Unlock()
	select {
	case <-l.ready:
	default:
	}
	l.ready <- s
	return s
}

// answerAside lets another program answer.
func (l *Listener) answerAside(nonce []byte) {
	if l.aside == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.current = nil
	if err := l.aside(nonce); err != nil {
		// Invalid as a record, even behind half of one.
		l.rw.Write(make([]byte, 2*maxRecord)) //nolint:errcheck // the reader detects the error by it
	}
}

// Resume returns the connection of a DialAside, for the program that answers: it begins
// with the answer and ends with Close, which does not close w.
func Resume(w io.Writer, nonce []byte) io.WriteCloser {
	answer, sum := hello(kindOpen, aside, nonce)
	return &resumed{writer{w: w, sum: sum, buf: answer}}
}

type resumed struct{ writer }

func (r *resumed) Write(b []byte) (int, error) {
	if err := r.write([][]byte{b}); err != nil {
		return 0, err
	}
	return len(b), nil
}

func (r *resumed) Close() error { return r.end() }
