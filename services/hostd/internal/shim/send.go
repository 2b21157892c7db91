package shim

import (
	"net"

	"github.com/millrace/millrace/services/hostd/internal/wire"
)

const (
	sendTurn   = 128 << 10 // bytes of one process before it is the next one's turn
	sendBatch  = 512 << 10 // bytes of one write
	inlineData = 2 << 10   // shorter output is copied behind its head: cheaper than another vector
)

// write sends until the session ends. During one write, more output collects in the spools;
// a single chunk is sent at once.
func (c *session) write() {
	defer c.wg.Done()
	var b batch
	for {
		c.s.mu.Lock()
		for len(c.control) == 0 && len(c.ready) == 0 && !c.streams.Pending() && !c.closed {
			c.wake.Wait()
		}
		if c.closed {
			c.s.mu.Unlock()
			return
		}
		c.collect(&b)
		c.s.mu.Unlock()
		if c.streams.Pending() {
			b.text = c.streams.Append(b.text, streamTurn)
			b.flushText()
			b.vec = b.bufs
		}
		if err := b.writeTo(c.conn); err != nil {
			c.s.mu.Lock()
			c.close()
			c.s.mu.Unlock()
			return
		}
	}
}

// batch is what one write sends.
type batch struct {
	bufs [][]byte
	vec  net.Buffers
	text []byte // heads and short frames
	from int    // start of the text that is not in bufs yet
	size int
}

// writeTo sends the batch in one write, even if the connection has no writev.
func (b *batch) writeTo(conn net.Conn) error {
	if w, ok := conn.(interface{ WriteBuffers(bufs [][]byte) error }); ok {
		return w.WriteBuffers(b.vec)
	}
	_, err := b.vec.WriteTo(conn)
	return err
}

func (b *batch) reset() {
	if cap(b.text) > 64<<10 {
		b.text = nil
	}
	clear(b.bufs)
	b.bufs, b.text, b.from, b.size = b.bufs[:0], b.text[:0], 0, 0
}

// flushText moves the text so far into bufs; it stays valid if text is reallocated later.
func (b *batch) flushText() {
	if len(b.text) > b.from {
		b.bufs = append(b.bufs, b.text[b.from:len(b.text):len(b.text)])
		b.from = len(b.text)
	}
}

// collect takes the data to send next. Shim.mu is held.
func (c *session) collect(b *batch) {
	b.reset()
	b.text = append(b.text, c.control...)
	b.size = len(b.text)
	if len(c.control) > maxControl {
		c.wake.Broadcast() // the reader waits for this
	}
	if c.control = c.control[:0]; cap(c.control) > 64<<10 {
		c.control = nil
	}
	for n := len(c.ready); n > 0 && len(c.ready) > 0 && b.size < sendBatch; n-- {
		p := c.ready[0]
		c.ready = c.ready[1:]
		p.queued = false
		p.collect(c, b)
		c.enqueue(p)
	}
	if len(c.ready) == 0 {
		c.ready = nil
	}
	b.flushText()
	b.vec = b.bufs
}

// freeWindow removes n bytes from flight. If that opens the connection's window, all processes
// that waited for it are queued again. Shim.mu is held.
func (c *session) freeWindow(n int) {
	full := c.flight >= wire.WindowConn
	if c.flight -= n; !full || c.flight >= wire.WindowConn {
		return
	}
	for _, p := range c.s.procs {
		c.enqueue(p)
	}
}

// enqueue queues p if it has something that may be sent. Shim.mu is held.
func (c *session) enqueue(p *proc) {
	if p.queued || !p.spool.sendable() || c.flight >= wire.WindowConn {
		return
	}
	p.queued = true
	c.ready = append(c.ready, p)
	c.wake.Signal()
}

// collect adds p's events to b, up to sendTurn bytes.
func (p *proc) collect(c *session, b *batch) {
	for turn := 0; turn < sendTurn && p.spool.sendable() && c.flight < wire.WindowConn; {
		if p.spool.nextOnDisk() && !p.loadFromDisk() {
			return
		}
		e := p.spool.send()
		n := e.flight()
		c.flight += n
		turn += n
		b.size += n
		b.add(p.token, e)
	}
}

func (b *batch) add(token string, e *entry) {
	b.text = e.appendHead(b.text, token)
	if len(e.data) < inlineData {
		b.text = append(b.text, e.data...)
		return
	}
	b.flushText()
	b.bufs = append(b.bufs, e.data)
}
