package link

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/mux"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// ErrHostile reports that a shim broke the protocol: nothing that it sends can be trusted.
var ErrHostile = errors.New("the shim broke the protocol")

var errBroken = kind.New(kind.Unavailable, "stream", "", "the connection to the sandbox broke")

const (
	maxMoved  = 64 << 20 // bytes of Moved frames before a hello
	maxQueue  = 80 << 20 // unsent bytes at which the shim is given up: more than all commands of a sandbox
	movedCost = 256      // cost of one Moved besides its bytes

	largeRead  = 8 << 10 // larger payloads are read into a block of one of these sizes:
	smallSize  = wire.MaxData/4 + 256
	middleSize = wire.MaxData/2 + 256
	blockSize  = wire.MaxData + 256

	sendDelay = 5 * time.Millisecond

	streamTurn = 32 << 10 // bytes of streams in one write, besides other frames
)

// Conn is one connection to a shim. Send may be called concurrently; Next belongs to one
// goroutine.
type Conn struct {
	conn net.Conn
	r    *wire.Reader
	pool *Pool

	streams *mux.Mux

	mu           sync.Mutex
	wake         sync.Cond
	out          []byte
	due          bool // out has to be written now
	timerRunning bool // sendTimer is running
	sendTimer    *time.Timer
	closed       bool
	done         chan struct{} // closed when the writer has ended
}

// Pool recycles the memory of large outputs. The zero value is ready to use, and may be
// shared by all connections. Memory from it is at most four times as long as requested: a
// sandbox chooses the length of its outputs, and they are accounted by that length until
// stored.
type Pool struct{ small, middle, large sync.Pool }

func (p *Pool) get(n int) []byte {
	switch {
	case n < largeRead || n > blockSize:
		return make([]byte, n)
	case n <= smallSize:
		return getBlock[[smallSize]byte](&p.small)[:n]
	case n <= middleSize:
		return getBlock[[middleSize]byte](&p.middle)[:n]
	}
	return getBlock[[blockSize]byte](&p.large)[:n]
}

func getBlock[Block any](of *sync.Pool) *Block {
	if b, ok := of.Get().(*Block); ok {
		return b
	}
	return new(Block)
}

// Put takes back the memory of a Message that is not used any more.
func (p *Pool) Put(mem []byte) {
	switch cap(mem) {
	case smallSize:
		p.small.Put((*[smallSize]byte)(mem[:smallSize]))
	case middleSize:
		p.middle.Put((*[middleSize]byte)(mem[:middleSize]))
	case blockSize:
		p.large.Put((*[blockSize]byte)(mem[:blockSize]))
	}
}

// Attach performs the handshake on conn, which it closes on error, and returns the shim's
// Hello. The file is passed along if conn is a unix socket. accept is mux.Config.Accept for
// the streams that the shim opens. It returns wire.ErrVersion for a shim with another
// version of the protocol.
func Attach(ctx context.Context, conn net.Conn, a *wire.Attach, file *os.File, pool *Pool, accept func(*mux.Stream)) (*Conn, wire.Hello, error) {
	c := &Conn{conn: conn, r: wire.NewReader(conn), pool: pool, done: make(chan struct{})}
	c.wake.L = &c.mu
	c.streams = mux.New(mux.Config{
		Even: true, Window: wire.WindowStream, MaxStreams: wire.MaxStreams, MaxOpen: wire.MaxStreams, Wake: c.wakeWriter, Accept: accept,
	})
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	hello, err := c.attach(a, file)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		conn.Close()
		return nil, wire.Hello{}, err
	}
	c.r.Alloc = pool.get
	go c.write()
	return c, hello, nil
}

func (c *Conn) attach(a *wire.Attach, file *os.File) (wire.Hello, error) {
	if err := writeWithFile(c.conn, wire.AppendAttach(nil, a), file); err != nil {
		return wire.Hello{}, fmt.Errorf("attach: %w", err)
	}
	payload, moved, err := c.readHello()
	if err != nil {
		return wire.Hello{}, fmt.Errorf("attach: %w", err)
	}
	hello, err := wire.ParseHello(payload)
	switch {
	case errors.Is(err, wire.ErrVersion):
		return hello, fmt.Errorf("attach: %w", err)
	case err != nil:
		return hello, fmt.Errorf("%w: hello", ErrHostile)
	}
	seen := make(map[string]bool, len(hello.Processes))
	for i := range hello.Processes {
		p := &hello.Processes[i]
		if seen[p.Token] || p.First < 2 || p.Last+1 < p.First || p.Last > 1<<62 {
			return hello, fmt.Errorf("%w: process %q in hello", ErrHostile, p.Token)
		}
		seen[p.Token] = true
		p.Moved = moved[p.Token]
	}
	return hello, nil
}

// readHello reads the Hello and the Moved frames before it.
func (c *Conn) readHello() (hello []byte, moved map[string]*wire.Moved, err error) {
	moved = make(map[string]*wire.Moved)
	for size := 0; size <= maxMoved; {
		t, payload, err := c.r.Next()
		if err != nil || t == wire.TypeHello {
			return payload, moved, err
		}
		m, err := wire.ParseMoved(payload)
		if t != wire.TypeMoved || err != nil {
			break
		}
		moved[m.Token] = &m
		size += movedCost + len(payload)
	}
	return nil, nil, ErrHostile
}

// writeWithFile writes b, and passes the file with its first byte if conn supports that.
func writeWithFile(conn net.Conn, b []byte, file *os.File) error {
	if u, ok := conn.(*net.UnixConn); ok && file != nil {
		n, _, err := u.WriteMsgUnix(b[:1], unix.UnixRights(int(file.Fd())), nil)
		if err != nil {
			return err
		}
		b = b[n:]
	}
	_, err := conn.Write(b)
	return err
}

// Close ends the connection, and with it Next.
func (c *Conn) Close() {
	c.closeConn()
	<-c.done
}

func (c *Conn) closeConn() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.sendTimer != nil {
		c.sendTimer.Stop()
	}
	c.conn.Close()
	c.streams.Break(errBroken)
	c.wake.Broadcast()
}

// Open opens a stream to target (package wire). Errors are those of mux.Mux.Open.
func (c *Conn) Open(ctx context.Context, target string) (*mux.Stream, error) {
	return c.streams.Open(ctx, target)
}

// wakeWriter wakes the writer for the streams.
func (c *Conn) wakeWriter() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wake.Signal()
}

// Send queues the frame that f appends. After the connection has ended it does nothing; a
// frame that must arrive has to be sent again on the next connection.
func (c *Conn) Send(f func([]byte) []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.put(f) {
		c.flush()
	}
}

// SendSoon is Send for a frame that is not urgent: it is written with the next urgent one,
// or after a few milliseconds. Each write costs the shim a wake-up.
func (c *Conn) SendSoon(f func([]byte) []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.put(f) || c.due || c.timerRunning {
		return
	}
	c.timerRunning = true
	if c.sendTimer == nil {
		c.sendTimer = time.AfterFunc(sendDelay, c.sendDelayed)
	} else {
		c.sendTimer.Reset(sendDelay)
	}
}

func (c *Conn) sendDelayed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timerRunning = false; len(c.out) > 0 {
		c.flush()
	}
}

// put appends a frame, unless the connection has ended. c.mu is held.
func (c *Conn) put(f func([]byte) []byte) bool {
	if c.closed {
		return false
	}
	if len(c.out) > maxQueue { // a shim always reads, regardless of its processes
		c.closed = true
		c.conn.Close()
	}
	c.out = f(c.out)
	return true
}

// flush wakes the writer. c.mu is held.
func (c *Conn) flush() {
	c.due = true
	c.wake.Signal()
}

func (c *Conn) write() {
	defer close(c.done)
	var spare []byte
	for {
		c.mu.Lock()
		for !c.due && !c.streams.Pending() && !c.closed {
			c.wake.Wait()
		}
		if c.closed {
			c.mu.Unlock()
			return
		}
		out := c.out
		c.out, c.due = spare[:0], false
		c.mu.Unlock()
		if c.streams.Pending() {
			out = c.streams.Append(out, streamTurn)
		}
		if _, err := c.conn.Write(out); err != nil {
			c.closeConn()
			return
		}
		if spare = out; cap(spare) > 64<<10 {
			spare = nil
		}
	}
}

// Message is a message of a shim: an event of the process Token if Type is wire.TypeEvent,
// else Reply, Rev (of a wire.TypeTaken) or nothing (TypeEnded).
type Message struct {
	Type  wire.Type
	Token string
	Event process.Event // shares Mem
	Reply wire.Reply
	Rev   uint64
	Mem   []byte // nil except for output: for Pool.Put when the event is not used any more
}

// Next returns the next message, and handles frames of streams meanwhile. Its event is well
// formed and of a kind that shims may send; a Track checks whether it fits its process.
func (c *Conn) Next() (Message, error) {
	t, b, err := c.frame()
	if err != nil {
		if errors.Is(err, wire.ErrMalformed) || errors.Is(err, mux.ErrProtocol) {
			err = fmt.Errorf("%w: %w", ErrHostile, err)
		}
		return Message{}, err
	}
	m := Message{Type: t, Mem: b}
	switch t {
	case wire.TypeOutput:
		err = m.output(b)
	case wire.TypeEvent:
		err = m.event(b)
	case wire.TypeReply:
		m.Reply, err = wire.ParseReply(b)
	case wire.TypeTaken:
		m.Rev, err = wire.ParseTaken(b)
	case wire.TypeEnded:
	default:
		err = wire.ErrMalformed
	}
	if t != wire.TypeOutput {
		c.pool.Put(b) // the rest was copied, and may be much smaller than its frame
		m.Mem = nil
	}
	if err != nil {
		return m, fmt.Errorf("%w: frame of type %d: %w", ErrHostile, t, err)
	}
	return m, nil
}

// frame returns the next frame that does not belong to a stream.
func (c *Conn) frame() (wire.Type, []byte, error) {
	for {
		t, b, err := c.r.Next()
		if err != nil || t < wire.TypeStreams {
			return t, b, err
		}
		err = c.streams.Handle(uint8(t), b)
		c.pool.Put(b)
		if err != nil {
			return t, nil, err
		}
	}
}

func (m *Message) output(b []byte) error {
	o, err := wire.ParseOutput(b)
	if err != nil {
		return err
	}
	if len(o.Data) == 0 {
		return wire.ErrMalformed
	}
	m.Type, m.Token = wire.TypeEvent, o.Token
	m.Event = process.Event{Seq: o.Seq, Time: time.Unix(0, o.Time),
		Body: process.Wrote{Stream: process.Stream(o.Stream), Offset: o.Offset, Data: o.Data}}
	return nil
}

func (m *Message) event(b []byte) error {
	e, err := wire.ParseEvent(b)
	if err != nil {
		return err
	}
	if m.Event, err = process.ParseEvent(e.Event); err != nil {
		return err
	}
	if _, ok := m.Event.Body.(process.Wrote); ok {
		return wire.ErrMalformed // output has a frame of its own, whose memory it shares
	}
	m.Token, m.Event.Seq = e.Token, e.Seq
	return nil
}
