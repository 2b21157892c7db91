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
	// flushAt is the size at which a batch is flushed before it is complete: the
	// client can process the first part while the next is encoded.
	flushAt = 256 << 10
	// firstFlush is how long the head waits for the first bytes, so that both
	// leave in one packet. A client may be waiting for the head alone.
	firstFlush = 20 * time.Millisecond
	// maxIdle stands for an encoder that does not need to be called when idle.
	maxIdle = time.Hour
	// maxPooledBuffer is the capacity of the largest buffer that returns to the pool.
	maxPooledBuffer = 1 << 20
)

// buffers is the pool of write buffers.
var buffers = sync.Pool{New: func() any { return &buffer{b: make([]byte, Headroom, 4<<10)} }}

type buffer struct{ b []byte }

func acquire() *buffer {
	return buffers.Get().(*buffer) //nolint:errcheck,forcetypeassert // only buffers are put
}

func (b *buffer) release() {
	if cap(b.b) <= maxPooledBuffer {
		b.b = b.b[:Headroom]
		buffers.Put(b)
	}
}

// ErrCut makes [Copy] break the connection in the middle of the body, after the bytes
// that the encoder has appended. An encoder returns it where the protocol reports an
// outcome that way.
var ErrCut = kind.New(kind.Canceled, "stream", "", "the stream was broken off")

// Copy encodes what src yields and sends it to w, one flush per batch, until the
// record or ctx ends. Then it appends the encoder's end of stream and ends w. If
// the cause of ctx has kind.Canceled, the client is gone and nothing more is sent.
// Copy does not close src.
//
// It returns nil if the end of the stream was sent, and otherwise the error that
// prevented it.
func Copy(ctx context.Context, w Writer, src Source, enc Encoder) error {
	c := copier{w: w, enc: enc, buf: acquire()}
	last, wait := time.Now(), c.idle(0)
	for c.writeErr == nil {
		c.buf.release()
		batch, err := src.Next(ctx, wait)
		c.buf = acquire()
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx) // the source returns only ctx.Err()
		}
		switch {
		case len(batch) > 0:
			last = time.Now()
			if err = c.batch(batch, err); err == nil && c.writeErr == nil {
				wait = c.idle(0)
			}
		case err == nil:
			if !c.flushed {
				c.flush() // the client is waiting for the head
			}
			wait = c.idle(time.Since(last))
		}
		if err != nil && c.writeErr == nil {
			c.end(err)
			break
		}
	}
	c.buf.release()
	return c.writeErr
}

type copier struct {
	w        Writer
	enc      Encoder
	buf      *buffer
	flushed  bool  // something was flushed, possibly only the head
	writeErr error // last error of w
}

// batch encodes the events and returns the error that ends the stream, or err.
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
		if c.writeErr != nil {
			break // the client receives nothing more
		}
	}
	if _, over := batch[len(batch)-1].Body.(process.Finished); over && err == nil {
		return io.EOF // so that the end leaves in the same flush as the last event
	}
	return err
}

// idle calls AppendIdle, flushes the buffer if it has content, and returns how long
// to wait for the next event.
func (c *copier) idle(silent time.Duration) time.Duration {
	b, wait := c.enc.AppendIdle(c.buf.b, silent)
	c.buf.b = b
	if len(b) > Headroom {
		c.flush()
	}
	if wait <= 0 {
		wait = maxIdle
	}
	if !c.flushed {
		wait = min(wait, firstFlush)
	}
	return wait
}

func (c *copier) flush() {
	c.flushed = true
	if c.writeErr == nil {
		c.writeErr = c.w.Flush(c.buf.b)
	}
	c.buf.b = c.buf.b[:Headroom]
}

// end appends and sends the end of the stream, unless the client is gone.
func (c *copier) end(err error) {
	switch {
	case errors.Is(err, io.EOF):
		err = nil
	case errors.Is(err, ErrCut):
		c.flush()
		c.writeErr = err
		return
	case kind.Is(err, kind.Canceled):
		c.writeErr = err
		return
	}
	c.buf.b = c.enc.AppendEnd(c.buf.b, err)
	c.writeErr = c.w.End(c.buf.b)
}
