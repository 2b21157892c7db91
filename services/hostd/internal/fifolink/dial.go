package fifolink

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

// closeTimeout limits the write of a Conn's last record, which only needs space in the
// stream.
const closeTimeout = 5 * time.Millisecond

// deadliner is a stream with deadlines, such as a file that can be polled.
type deadliner interface {
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
}

// Conn is the dialer's end of a connection. It is safe for concurrent use.
type Conn struct {
	rw          io.ReadWriteCloser
	to          byte          // version or aside
	syncWritten chan struct{} // closed when the sync was written, or failed
	answered    chan struct{} // closed when the answer arrived, or failed

	read struct {
		sync.Mutex
		buf  buffer
		sum  uint32
		data []byte // rest of a partly read record
		err  error  // owned by awaitAnswer until answered is closed
	}
	write struct {
		sync.Mutex
		writer // err: owned by writeSync until syncWritten is closed
	}
}

var _ net.Conn = (*Conn)(nil)

// Dial opens a connection over rw and takes ownership of it, even on error. Only the
// connection may read from the stream. Dial waits for the listener's answer until ctx ends.
func Dial(ctx context.Context, rw io.ReadWriteCloser) (*Conn, error) { return dial(ctx, rw, version) }

// DialAside is Dial for a stream that another program writes; see [ListenAside]. Only that
// program writes, and io.EOF is its end: the end of rw itself is io.ErrUnexpectedEOF.
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

// Await waits for the answer to a connection from Begin, and closes the connection if ctx
// ends first. Other goroutines may write meanwhile, or close it, which also ends Await.
func (c *Conn) Await(ctx context.Context) error {
	select {
	case <-c.answered:
	case <-ctx.Done():
		c.rw.Close()
		<-c.answered
		c.read.err = ctx.Err()
	}
	<-c.syncWritten
	if c.read.err != nil {
		return fmt.Errorf("fifolink: dial: %w", c.read.err)
	}
	return nil
}

// Begin is Dial without waiting for the answer, for a listener that may be paused. Written
// data follows the sync as far as the stream has space; Read waits. A deadline that passes
// before the answer arrives ends the connection.
func Begin(rw io.ReadWriteCloser) *Conn { return begin(rw, version) }

func begin(rw io.ReadWriteCloser, to byte) *Conn {
	c := &Conn{rw: rw, to: to, syncWritten: make(chan struct{}), answered: make(chan struct{})}
	nonce := make([]byte, nonceLen)
	rand.Read(nonce)
	sync, sum := hello(kindSync, to, nonce)
	answer, answerSum := hello(kindOpen, to, nonce)
	c.write.w, c.write.sum, c.read.sum = rw, sum, answerSum
	// At once, because the listener may be blocked in a write of the previous connection.
	go c.writeSync(append(make([]byte, 2*maxRecord), sync...))
	go c.awaitAnswer(answer)
	return c
}

func (c *Conn) writeSync(sync []byte) {
	defer close(c.syncWritten)
	if _, err := c.rw.Write(sync); err != nil {
		c.write.err = err
		c.rw.Close()
	}
}

func (c *Conn) awaitAnswer(answer []byte) {
	defer close(c.answered)
	if err := c.read.buf.seek(c.rw, answer); err != nil {
		c.read.err = err
		c.rw.Close()
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

// Read implements net.Conn. io.EOF: the listener closed the connection, or the stream
// ended. Every other error except an expired deadline is permanent.
func (c *Conn) Read(p []byte) (int, error) {
	r := &c.read
	<-c.answered
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

// failed translates a read error: an end in the middle of a record, or before the last
// record of another program, is unexpected.
func (c *Conn) failed(err error) error {
	if errors.Is(err, io.EOF) && (len(c.read.buf.bytes()) > 0 || c.to == aside) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Nudge sends a record without data. It makes the reader poll the stream again and find
// data that was taken out of the stream and kept for it.
func (c *Conn) Nudge() error {
	_, err := c.Write(nil)
	return err
}

// Write implements net.Conn. After any error, also an expired deadline, the connection can
// only be closed.
func (c *Conn) Write(p []byte) (int, error) {
	<-c.syncWritten
	c.write.Lock()
	defer c.write.Unlock()
	if err := c.write.write([][]byte{p}); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close ends the connection and closes the stream on this side. The listener is notified if
// the stream has space for the last record, else by the next Dial.
func (c *Conn) Close() error {
	if d, ok := c.rw.(deadliner); ok && c.isAnswered() && c.write.TryLock() {
		if d.SetWriteDeadline(time.Now().Add(closeTimeout)) == nil {
			c.write.end() //nolint:errcheck // the next Dial notifies the listener
		}
		c.write.Unlock()
	}
	return c.rw.Close()
}

func (c *Conn) isAnswered() bool {
	select {
	case <-c.answered:
		return true
	default:
		return false
	}
}

// SetDeadline implements net.Conn; os.ErrNoDeadline if the stream has no deadlines.
func (c *Conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetReadDeadline implements net.Conn.
func (c *Conn) SetReadDeadline(t time.Time) error {
	if d, ok := c.rw.(deadliner); ok {
		return d.SetReadDeadline(t)
	}
	return os.ErrNoDeadline
}

// SetWriteDeadline implements net.Conn.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	if d, ok := c.rw.(deadliner); ok {
		return d.SetWriteDeadline(t)
	}
	return os.ErrNoDeadline
}

// LocalAddr implements net.Conn.
func (c *Conn) LocalAddr() net.Addr { return addr{} }

// RemoteAddr implements net.Conn.
func (c *Conn) RemoteAddr() net.Addr { return addr{} }

// addr is the address of each end: the stream has no others.
type addr struct{}

func (addr) Network() string { return "fifo" }
func (addr) String() string  { return "fifo" }
