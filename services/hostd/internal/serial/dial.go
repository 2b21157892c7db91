package serial

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// closeTimeout is for the last words of a Conn, which need no more than room in
// the stream.
const closeTimeout = 5 * time.Millisecond

// deadliner is a stream that has deadlines, as files that can be polled have.
type deadliner interface {
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
}

// Conn is the dialer's end of a connection. Its methods may be called at the same
// time.
type Conn struct {
	rw     io.ReadWriteCloser
	to     byte          // version or aside
	asked  chan struct{} // closed when the sync is written, or cannot be
	opened chan struct{} // closed when the answer has come, or never will

	read struct {
		sync.Mutex
		buf  buffer
		sum  uint32
		data []byte // of a record that was not wholly taken
		err  error  // by opened until that is closed
	}
	write struct {
		sync.Mutex
		writer // err: by asked until that is closed
	}
}

var _ net.Conn = (*Conn)(nil)

// Dial begins a connection over rw, which belongs to it from now on, also on
// error. Nobody else may read from the stream meanwhile. A listener that does not
// answer is waited for until ctx ends.
func Dial(ctx context.Context, rw io.ReadWriteCloser) (*Conn, error) { return dial(ctx, rw, version) }

// DialAside is Dial for what another program answers; see ListenAside. Only it writes, and
// io.EOF is its own: a stream that ends is io.ErrUnexpectedEOF.
func DialAside(ctx context.Context, rw io.ReadWriteCloser) (*Conn, error) {
	return dial(ctx, rw, aside)
}

func dial(ctx context.Context, rw io.ReadWriteCloser, to byte) (*Conn, error) {
	c := begin(rw, to)
	if err := c.Await(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

// Await waits for the answer to a connection that was begun; the connection ends where there
// is none before ctx ends. Others may write meanwhile, and close it: then Await ends, too.
func (c *Conn) Await(ctx context.Context) error {
	select {
	case <-c.opened:
	case <-ctx.Done():
		c.rw.Close() //nolint:errcheck // what waits for it fails
		<-c.opened
		c.read.err = ctx.Err()
	}
	<-c.asked
	if c.read.err != nil {
		return fmt.Errorf("serial: dial: %w", c.read.err)
	}
	return nil
}

// Begin is Dial for a listener that may stand still: it does not wait for the
// answer. What is written goes after the sync as far as there is room; Read waits.
// A deadline that passes before the answer has come ends the connection.
func Begin(rw io.ReadWriteCloser) *Conn { return begin(rw, version) }

func begin(rw io.ReadWriteCloser, to byte) *Conn {
	c := &Conn{rw: rw, to: to, asked: make(chan struct{}), opened: make(chan struct{})}
	nonce := make([]byte, nonceLen)
	rand.Read(nonce) //nolint:errcheck // never fails
	sync, sum := hello(kindSync, to, nonce)
	answer, answerSum := hello(kindOpen, to, nonce)
	c.write.w, c.write.sum, c.read.sum = rw, sum, answerSum
	// At once, because the listener may be stuck in a write of the connection
	// before.
	go c.ask(append(make([]byte, 2*maxRecord), sync...))
	go c.open(answer)
	return c
}

func (c *Conn) ask(sync []byte) {
	defer close(c.asked)
	if _, err := c.rw.Write(sync); err != nil {
		c.write.err = err
		c.rw.Close() //nolint:errcheck // there will be no answer
	}
}

func (c *Conn) open(answer []byte) {
	defer close(c.opened)
	if err := c.read.buf.seek(c.rw, answer); err != nil {
		c.read.err = err
		c.rw.Close() //nolint:errcheck // it ends the write
	}
}

// seek reads until it has read what, and skips it.
func (b *buffer) seek(r io.Reader, what []byte) error {
	for {
		if i := bytes.Index(b.bytes(), what); i >= 0 {
			b.skip(i + len(what))
			return nil
		}
		b.skip(max(0, len(b.bytes())-len(what)+1))
		if err := b.fill(r); err != nil {
			return err
		}
	}
}

// Read is net.Conn.Read. io.EOF: the listener has closed the connection, or the
// stream has an end. Any other error but that of a deadline is for good.
func (c *Conn) Read(p []byte) (int, error) {
	r := &c.read
	<-c.opened
	r.Lock()
	defer r.Unlock()
	for len(r.data) == 0 {
		if r.err != nil || len(p) == 0 {
			return 0, r.err
		}
		kind, data, n, err := parseRecord(r.buf.bytes(), r.sum)
		switch {
		case err != nil:
			r.err = err
		case n == 0:
			if err := r.buf.fill(c.rw); err != nil {
				return 0, c.failed(err)
			}
		case kind == kindData:
			r.sum, r.data = sumOf(r.buf.bytes()), data
			r.buf.skip(n)
		case kind == kindEnd:
			r.err = io.EOF
		default:
			r.err = ErrBroken
		}
	}
	n := copy(p, r.data)
	r.data = r.data[n:]
	return n, nil
}

// failed is what a failed read means: an end in the middle of a record is none, nor is one
// that a program aside has not told.
func (c *Conn) failed(err error) error {
	if errors.Is(err, io.EOF) && (len(c.read.buf.bytes()) > 0 || c.to == aside) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Nudge sends nothing, by a record that holds none: who reads looks at the stream again, and
// finds what was taken out of it and kept for him.
func (c *Conn) Nudge() error {
	_, err := c.Write(nil)
	return err
}

// Write is net.Conn.Write. After an error, also that of a deadline, the connection
// can only be closed.
func (c *Conn) Write(p []byte) (int, error) {
	<-c.asked
	c.write.Lock()
	defer c.write.Unlock()
	if err := c.write.write([][]byte{p}); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close ends the connection and closes the stream on this side. The listener
// learns of it if there is room for its last words, else when somebody dials.
func (c *Conn) Close() error {
	if d, ok := c.rw.(deadliner); ok && c.isOpen() && c.write.TryLock() {
		if d.SetWriteDeadline(time.Now().Add(closeTimeout)) == nil {
			c.write.end() //nolint:errcheck // the listener learns of it when somebody dials
		}
		c.write.Unlock()
	}
	return c.rw.Close()
}

func (c *Conn) isOpen() bool {
	select {
	case <-c.opened:
		return true
	default:
		return false
	}
}

// SetDeadline is net.Conn.SetDeadline; os.ErrNoDeadline if the stream has none.
func (c *Conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetReadDeadline is net.Conn.SetReadDeadline.
func (c *Conn) SetReadDeadline(t time.Time) error {
	if d, ok := c.rw.(deadliner); ok {
		return d.SetReadDeadline(t)
	}
	return os.ErrNoDeadline
}

// SetWriteDeadline is net.Conn.SetWriteDeadline.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	if d, ok := c.rw.(deadliner); ok {
		return d.SetWriteDeadline(t)
	}
	return os.ErrNoDeadline
}

// LocalAddr is net.Conn.LocalAddr.
func (c *Conn) LocalAddr() net.Addr { return addr{} }

// RemoteAddr is net.Conn.RemoteAddr.
func (c *Conn) RemoteAddr() net.Addr { return addr{} }

// addr is the address of every end: there is but one at each.
type addr struct{}

func (addr) Network() string { return "serial" }
func (addr) String() string  { return "serial" }
