package session

import (
	"time"

	"github.com/millrace/millrace/services/hostd/internal/shim/internal/output"
)

const (
	maxControl = 4 << 20  // bytes of queued control frames beyond which reading commands stops
	streamTurn = 32 << 10 // bytes of streams in one write, besides one turn of the processes
)

// write sends until the session ends. During one write, more output collects in the buffer; a
// single chunk is sent at once.
func (c *session) write() {
	defer c.wg.Done()
	defer close(c.written)
	var b output.Batch
	for more := false; ; {
		if !c.awaitPending(more) {
			return
		}
		more = c.server.cfg.Output.Collect(&b, c.takeControl)
		if c.streams.Pending() {
			b.Append(func(dst []byte) []byte { return c.streams.Append(dst, streamTurn) })
		}
		if err := b.WriteTo(c.conn); err != nil {
			c.close()
			return
		}
	}
}

// awaitPending waits until there is something to send; it does not wait if the caller has
// more. It reports whether the writer must go on.
func (c *session) awaitPending(more bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for !more && len(c.control) == 0 && !c.pending && !c.streams.Pending() && !c.last && !c.closed {
		c.wake.Wait()
	}
	c.pending = false
	return !c.closed && (!c.last || len(c.control) > 0)
}

// setPending wakes the writer: there are events or frames of streams to send.
func (c *session) setPending() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pending = true
	c.wake.Signal()
}

// takeControl moves the queued control frames to dst.
func (c *session) takeControl(dst []byte) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	dst = append(dst, c.control...)
	if c.soon != nil {
		c.soon.Stop()
	}
	if len(c.control) > maxControl {
		c.wake.Broadcast() // the reader waits for this
	}
	if c.control = c.control[:0]; cap(c.control) > 64<<10 {
		c.control = nil
	}
	return dst
}

// sendDelay is how long a frame of sendSoon waits for others.
const sendDelay = time.Millisecond

// sendSoon is send for a frame that waits a moment for events, so that all are one write: each
// one wakes hostd.
func (c *session) sendSoon(f func([]byte) []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.control = f(c.control)
	if c.soon == nil {
		c.soon = time.AfterFunc(sendDelay, c.setPending)
		return
	}
	c.soon.Reset(sendDelay)
}

// send queues a control frame, unless the session has ended.
func (c *session) send(f func([]byte) []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.control = f(c.control)
	c.wake.Signal()
}
