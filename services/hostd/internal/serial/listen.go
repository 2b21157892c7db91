package serial

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// A stream with nobody at the other end may read as ended until somebody comes,
// as that of a virtio-serial port does.
const (
	firstPause = time.Millisecond
	lastPause  = 50 * time.Millisecond
)

// Listener is the end that is dialed. It has one connection at a time, which ends
// when the next one begins; for that, it must be read from or closed.
type Listener struct {
	rw    io.ReadWriteCloser
	ready chan net.Conn // what Accept gives next
	done  chan struct{} // closed by Close
	once  sync.Once
	aside func(nonce []byte) error

	reader reader

	mu  sync.Mutex // held while writing
	now *session   // whose records may be written; nil: nobody's
	out writer
}

var _ net.Listener = (*Listener)(nil)

// Listen accepts the connections of those who dial at the other end of rw, which
// belongs to the Listener.
func Listen(rw io.ReadWriteCloser) *Listener { return ListenAside(rw, nil) }

// ListenAside is Listen where another program answers those who DialAside: other is called
// for each of them, and what it starts writes to the stream what Resume does with the nonce.
// Until it returns, nobody else writes or reads; with an error the connection is broken.
// Nil: they are not answered.
func ListenAside(rw io.ReadWriteCloser, other func(nonce []byte) error) *Listener {
	l := &Listener{rw: rw, aside: other, ready: make(chan net.Conn, 1), done: make(chan struct{}), out: writer{w: rw}}
	go l.read()
	return l
}

// Accept is net.Listener.Accept. A connection that nobody accepted before the
// next one began is not given.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.ready:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close ends Accept and closes the stream. The connection of the moment fails.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.done) })
	return l.rw.Close()
}

// Addr is net.Listener.Addr.
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
				l.stepAside(r.data)
				continue
			}
			s = l.begin(r.data)
		case kindData:
			if s != nil {
				s.feed.Write(r.data) //nolint:errcheck // it has been closed, and listens no more
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

// begin puts a connection in the place of the one before.
func (l *Listener) begin(nonce []byte) *session {
	ours, feed := net.Pipe()
	s := &session{Conn: ours, feed: feed, l: l}
	answer, sum := hello(kindOpen, version, nonce)
	l.mu.Lock() // whoever writes is freed by the dialer, who reads
	l.now = s
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

// stepAside has another program answer.
func (l *Listener) stepAside(nonce []byte) {
	if l.aside == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now = nil
	if err := l.aside(nonce); err != nil {
		// No record of a connection, also behind a half.
		l.rw.Write(make([]byte, 2*maxRecord)) //nolint:errcheck // who reads learns it from that
	}
}

// Resume is the connection of one who dialed aside, for the program that answers: it
// begins with the answer, and ends with Close, which does not close w.
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
