package stream

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
)

const (
	// flushAt is when a batch is sent although more of it is at hand: the
	// client can work on the first part while we encode the next.
	flushAt = 256 << 10
	// firstFlush is how long the head waits for the first bytes, so that both
	// leave in one packet; a client that waits for its head must get it.
	firstFlush = 20 * time.Millisecond
	// forever stands for an encoder that never wants to be called in silence.
	forever = time.Hour
	// keepBuffer is the largest buffer that is kept for the next stream.
	keepBuffer = 1 << 20
)

// buffers are free write buffers: a cache, not state.
var buffers = sync.Pool{New: func() any { return &buffer{b: make([]byte, Headroom, 4<<10)} }}

type buffer struct{ b []byte }

func acquire() *buffer {
	return buffers.Get().(*buffer) //nolint:errcheck,forcetypeassert // only buffers are put
}

func (b *buffer) release() {
	if cap(b.b) <= keepBuffer {
		b.b = b.b[:Headroom]
		buffers.Put(b)
	}
}

// ErrCut is what an encoder gives that wants the connection broken off after what it has
// appended, in the middle of the body, where that is how clients of its protocol learn
// what happened.
var ErrCut = kind.New(kind.Canceled, "stream", "", "the stream was broken off")

// Copy encodes what src yields and sends it to w, one flush a batch, until the
// record or ctx ends; then it has the encoder say why and ends w. A ctx
// cancelled with a cause of kind.Canceled says that there is nobody to talk to:
// nothing is said then. Copy does not close src.
//
// It returns nil if the last words were sent, whatever they were; otherwise
// what kept it from sending them.
func Copy(ctx context.Context, w Writer, src Source, enc Encoder) error {
	c := copier{w: w, enc: enc, buf: acquire()}
	last, wait := time.Now(), c.rest(0)
	for c.broken == nil {
		c.buf.release()
		batch, err := src.Next(ctx, wait)
		c.buf = acquire()
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx) // the source says only that it was told to stop
		}
		switch {
		case len(batch) > 0:
			last = time.Now()
			if err = c.batch(batch, err); err == nil && c.broken == nil {
				wait = c.rest(0)
			}
		case err == nil:
			if !c.begun {
				c.flush() // the client waits for the head
			}
			wait = c.rest(time.Since(last))
		}
		if err != nil && c.broken == nil {
			c.end(err)
			break
		}
	}
	c.buf.release()
	return c.broken
}

type copier struct {
	w      Writer
	enc    Encoder
	buf    *buffer
	begun  bool  // something was flushed, be it the head alone
	broken error // what w said last
}

// batch encodes the events and gives what follows them: err, if it is not nil.
func (c *copier) batch(batch []process.Event, err error) error {
	for i := range batch {
		b, failed := c.enc.AppendEvent(c.buf.b, batch[i])
		c.buf.b = b
		if failed != nil {
			return failed
		}
		if len(b) >= flushAt {
			c.flush()
		}
		if c.broken != nil {
			break // nothing that follows counts
		}
	}
	if _, over := batch[len(batch)-1].Body.(process.Finished); over && err == nil {
		return io.EOF // the end leaves in the flush of the last event
	}
	return err
}

// rest has the encoder append what is due, sends what there is, and gives how
// long to wait for the next event.
func (c *copier) rest(silent time.Duration) time.Duration {
	b, wait := c.enc.AppendIdle(c.buf.b, silent)
	c.buf.b = b
	if len(b) > Headroom {
		c.flush()
	}
	if wait <= 0 {
		wait = forever
	}
	if !c.begun {
		wait = min(wait, firstFlush)
	}
	return wait
}

func (c *copier) flush() {
	c.begun = true
	if c.broken == nil {
		c.broken = c.w.Flush(c.buf.b)
	}
	c.buf.b = c.buf.b[:Headroom]
}

// end has the last words said, if there is anybody to hear them.
func (c *copier) end(err error) {
	switch {
	case errors.Is(err, io.EOF):
		err = nil
	case errors.Is(err, ErrCut):
		c.flush()
		c.broken = err
		return
	case kind.Is(err, kind.Canceled):
		c.broken = err
		return
	}
	c.buf.b = c.enc.AppendEnd(c.buf.b, err)
	c.broken = c.w.End(c.buf.b)
}
