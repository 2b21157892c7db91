package websocket

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/fasthttp/websocket"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/gateway/internal/recovery"
	"github.com/millrace/millrace/services/gateway/internal/stream"
)

// Conn is a WebSocket connection. Its methods may be called concurrently.
type Conn struct {
	wire     *wire
	server   *Server
	opts     *Options
	protocol string
	end      atomic.Int32 // an ending

	readMu sync.Mutex      // held during a read
	ws     *websocket.Conn // guarded by readMu: the library may reuse its parts once gone is set and run has returned
	gone   bool            // guarded by readMu: no message can be read any more
	rest   bool            // guarded by readMu: the client may still be sending
	first  int             // guarded by readMu: capacity of the next message's first buffer

	budgetMu sync.Mutex
	budget   *stream.Budget // nil after the end
	held     int            // bytes of messages that are not released

	alive alive
}

// Errors of Read.
var (
	errLeft   = kind.New(kind.Canceled, "websocket", "", "the client closed the connection")
	errOver   = kind.New(kind.Canceled, "websocket", "", "the connection is closed")
	errNoPong = kind.New(kind.Canceled, "websocket", "", "the client answered no ping")
	errText   = kind.New(kind.Invalid, "websocket", "", "a text message is not UTF-8")
	errSize   = kind.New(kind.Invalid, "websocket", "", "the message is too large")
	errFrames = kind.New(kind.Invalid, "websocket", "", "the message has too many fragments")
)

// run handles the connection until its end.
func (c *Conn) run(ctx context.Context, ws *websocket.Conn, h Handler) {
	c.server.open.Add(1)
	defer c.server.open.Add(-1)
	c.wire.upgrade(c.writeFailed)
	c.ws, c.rest = ws, true
	ws.SetReadLimit(int64(c.opts.MaxMessage))
	ws.SetPongHandler(func(string) error { return nil })
	ws.SetPingHandler(func(payload string) error {
		c.wire.postPong(payload)
		return nil
	})
	ws.SetCloseHandler(c.echo)
	c.startPings()
	stop := context.AfterFunc(ctx, func() { c.drain(ctx, h.Drain) })

	err := recovery.Do(c.server.streams.Log(), "websocket", func() error { return h.Serve(ctx, c) })
	c.conclude(ctx, err)
	stop()
	c.finish()
}

// drain lets the protocol close the connection if ctx ended in a drain.
func (c *Conn) drain(ctx context.Context, do func(*Conn)) {
	if !kind.Is(context.Cause(ctx), kind.Unavailable) {
		return
	}
	c.ended(endDrain)
	if do == nil {
		c.Close(GoingAway, goingAway)
		return
	}
	recovery.Do(c.server.streams.Log(), "websocket drain", func() error { //nolint:errcheck // logged
		do(c)
		return nil
	})
}

// conclude closes the connection after its handler has returned err, unless it is closed.
func (c *Conn) conclude(ctx context.Context, err error) {
	code, reason, why := Normal, "", endServer
	switch {
	case kind.Is(context.Cause(ctx), kind.Unavailable):
		code, reason, why = GoingAway, goingAway, endDrain
	case err == nil || errors.Is(err, io.EOF):
	case kind.Is(err, kind.Unavailable), kind.Is(err, kind.Exhausted):
		code, reason = TryLater, kind.Message(err)
	case kind.Is(err, kind.Internal):
		code, why = Fault, endFault
	default:
		code, reason = Policy, kind.Message(err)
	}
	c.close(code, reason, why)
}

// finish waits until the client closes the connection and releases what it holds.
func (c *Conn) finish() {
	c.alive.timer.Stop()
	c.wire.raw.Cancel(errOver)
	c.readMu.Lock() // another goroutine may still read; the deadline ends that
	defer c.readMu.Unlock()
	if c.rest {
		io.Copy(io.Discard, c.wire.raw) //nolint:errcheck // until the client closes the connection or CloseTimeout
	}
	c.ws, c.gone, c.rest = nil, true, false
	c.budgetMu.Lock()
	defer c.budgetMu.Unlock()
	c.budget.Shrink(0)
	c.budget = nil
	c.server.ended[c.ending()].Add(1)
}

// Protocol returns the selected subprotocol; empty if there is none.
func (c *Conn) Protocol() string { return c.protocol }

// ended records why the connection ends; the first reason counts.
func (c *Conn) ended(why ending) { c.end.CompareAndSwap(0, int32(why)) }

func (c *Conn) ending() ending { return ending(c.end.Load()) }

// Close sends a close frame after the messages that are being sent, and ends the context of the
// handler. Nothing can be sent after it, and Read returns no message any more. Close does not
// wait for the client, which has CloseTimeout to close the connection. Without a code the frame
// is empty; a reason is cut to 123 bytes.
func (c *Conn) Close(code Code, reason string) { c.close(code, reason, endServer) }

func (c *Conn) close(code Code, reason string, why ending) {
	c.ended(why)
	c.wire.send(appendClose(nil, code, reason)) //nolint:errcheck // closed before, or the client left
	c.hangUp()
}

// hangUp closes the sending side after the close frame, and limits the time in which the
// client may do the same.
func (c *Conn) hangUp() {
	c.wire.raw.SetReadDeadline(time.Now().Add(c.opts.CloseTimeout)) // the next read fails
	c.wire.raw.CloseWrite()
	c.wire.raw.Cancel(errOver)
}

// echo answers a close frame of the client with the same code.
func (c *Conn) echo(code int, _ string) error {
	c.ended(endClient)
	if code == websocket.CloseNoStatusReceived {
		code = 0
	}
	c.close(Code(code), "", endClient)
	return nil
}

// writeFailed records why a write failed.
func (c *Conn) writeFailed(err error) {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.ended(endStalled)
		c.server.streams.Log().Info("disconnect stalled client", "client", c.wire.raw.RemoteAddr())
	}
	c.ended(endClient)
	c.wire.raw.Cancel(errLeft)
}

// buffers is the pool of buffers for Write.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// maxPooled is the capacity of the largest buffer that returns to the pool.
const maxPooled = 64 << 10

// Write sends a message. An error means that the connection is closed.
func (c *Conn) Write(t Type, payload []byte) error {
	buf := buffers.Get().(*[]byte) //nolint:errcheck,forcetypeassert // only buffers are put
	*buf = AppendMessage((*buf)[:0], t, payload)
	err := c.wire.send(*buf)
	if cap(*buf) <= maxPooled {
		buffers.Put(buf)
	}
	return err
}

// Message is a received message. It occupies the tenant's budget until it is released.
type Message struct {
	Type Type
	Data []byte
	size int // bytes counted
	conn *Conn
}

// Release ends the use of Data.
func (m *Message) Release() {
	if m.conn != nil {
		m.conn.shrink(m.size)
	}
	*m = Message{}
}

// Read returns the next message. Pings and close frames are processed only during Read. Its
// error is io.EOF if the client closed the connection with a close frame, Canceled if the client
// left without one or the gateway closed the connection, Invalid if the client violated the
// protocol or a limit, and Unavailable if its tenant's budget is exhausted. The connection is
// closed in each case.
func (c *Conn) Read() (Message, error) {
	c.readMu.Lock()
	defer c.readMu.Unlock()
	if c.gone {
		return Message{}, errOver
	}
	for {
		m, err := c.read()
		if err != nil {
			c.gone = true
			err = c.failed(err)
			c.wire.raw.Cancel(errLeft)
			return Message{}, err
		}
		if c.wire.code.Load() == 0 {
			return m, nil
		}
		m.Release() // the gateway has closed the connection and waits for the client's close frame
	}
}

// read reads the next message.
func (c *Conn) read() (Message, error) {
	t, r, err := c.ws.NextReader()
	if err != nil {
		return Message{}, err
	}
	m := Message{Type: Type(t), conn: c}
	for err == nil {
		if len(m.Data) == cap(m.Data) {
			if err = c.grow(&m); err != nil {
				break
			}
		}
		var n int
		n, err = r.Read(m.Data[len(m.Data):cap(m.Data)])
		m.Data = m.Data[:len(m.Data)+n]
	}
	switch {
	case !errors.Is(err, io.EOF):
	case m.Type == Text && !utf8.Valid(m.Data):
		err = errText
	default:
		c.first = min(len(m.Data)+1, maxFirst) // one more, to find the end
		return m, nil
	}
	m.Release()
	return Message{}, err
}

// failed closes the connection after an error of read and returns the error for the handler.
func (c *Conn) failed(err error) error {
	var closed *websocket.CloseError
	switch {
	case errors.Is(err, errText):
		c.close(BadText, kind.Message(err), endViolation)
	case errors.Is(err, errFragments):
		err = errFrames
		c.close(Policy, kind.Message(err), endViolation)
	case errors.Is(err, websocket.ErrReadLimit): // the library may have closed it
		err = errSize
		c.close(TooLarge, kind.Message(err), endViolation)
	case errors.Is(err, stream.ErrOverBudget):
		c.close(TryLater, kind.Message(err), endViolation)
	case errors.As(err, &closed) && closed.Code != websocket.CloseAbnormalClosure:
		c.rest = false
		if err = errOver; c.ending() == endClient {
			err = io.EOF
		}
	case c.ending() == 0 && c.wire.code.Load() != 0: // the library has closed it
		c.ended(endViolation)
		c.hangUp()
		err = kind.Wrap(kind.Invalid, "websocket", "", err)
	default:
		c.rest = false
		c.ended(endClient)
		switch c.ending() {
		case endClient:
			err = errLeft
		case endNoPong:
			err = errNoPong
		default:
			err = errOver
		}
	}
	return err
}

// Discard reads and discards messages until the connection is closed, and returns the error of
// [Conn.Read].
func (c *Conn) Discard() error {
	for {
		m, err := c.Read()
		if err != nil {
			return err
		}
		m.Release()
	}
}

// The first buffer of a message has at least minFirst bytes, and otherwise the size of the message
// before it up to maxFirst: the messages of a tunnel are alike.
const minFirst, maxFirst = 512, 64<<10 + 1

// grow doubles the capacity of a message if the budget allows that.
func (c *Conn) grow(m *Message) error {
	size := max(2*cap(m.Data), minFirst)
	if m.Data == nil {
		size = max(size, c.first)
	}
	size = min(size, c.opts.MaxMessage+1) // one more, to find the end
	c.budgetMu.Lock()
	defer c.budgetMu.Unlock()
	if !c.budget.Grow(c.held + size - m.size) {
		return stream.ErrOverBudget
	}
	c.held += size - m.size
	m.size = size
	m.Data = append(make([]byte, 0, size), m.Data...)
	return nil
}

func (c *Conn) shrink(size int) {
	c.budgetMu.Lock()
	defer c.budgetMu.Unlock()
	if c.budget != nil {
		c.held -= size
		c.budget.Shrink(c.held)
	}
}
