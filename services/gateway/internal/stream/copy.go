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

func (b *buffer) release() {
	if cap(b.b) <= keepBuffer {
		b.b = b.b[:Headroom]
		buffers.Put(b)
	}
}

// Copy encodes what src yields and sends it to w, one flush a batch, until the
// record or ctx ends; then it has the encoder say why and ends w. A ctx
// cancelled with a cause of kind.Canceled says that there is nobody to talk to:
// nothing is said then. Copy does not close src.
//
// It returns nil if the last words were sent, whatever they were; otherwise
// what kept it from sending them.
func Copy(ctx context.Context, w Writer, src Source, enc Encoder) error {
	c := copier{w: w, enc: enc}
	last, wait := time.Now(), c.start()
	for {
		batch, err := src.Next(ctx, wait)
		c.buf = buffers.Get().(*buffer) //nolint:forcetypeassert // only buffers are put
		switch {
		case len(batch) > 0:
			last = time.Now()
			wait, err = c.batch(batch, err)
		case err == nil:
			wait, err = c.silence(time.Since(last))
		}
		if err == nil && c.broken == nil {
			c.buf.release()
			continue
		}
		if c.broken == nil {
			c.end(ctx, err)
		}
		c.buf.release()
		return c.broken
	}
}

type copier struct {
	w      Writer
	enc    Encoder
	buf    *buffer
	begun  bool  // something was flushed, be it the head alone
	broken error // what w said last
}

// start asks the encoder how long it can do without events.
func (c *copier) start() time.Duration {
	c.buf = buffers.Get().(*buffer) //nolint:forcetypeassert // only buffers are put
	defer c.buf.release()
	wait, _ := c.rest(0)
	return min(wait, firstFlush)
}

// batch encodes the events and what follows them: err, if it is not nil.
func (c *copier) batch(batch []process.Event, err error) (time.Duration, error) {
	for i := range batch {
		b, failed := c.enc.AppendEvent(c.buf.b, batch[i])
		c.buf.b = b
		if failed != nil {
			return 0, failed
		}
		if len(c.buf.b) >= flushAt {
			if c.flush(); c.broken != nil {
				return 0, nil
			}
		}
	}
	if _, over := batch[len(batch)-1].Body.(process.Finished); over && err == nil {
		err = io.EOF // and the end leaves in the flush of the last event
	}
	if err != nil {
		return 0, err
	}
	return c.rest(0)
}

// silence gives the encoder its turn when nothing happens.
func (c *copier) silence(silent time.Duration) (time.Duration, error) {
	if !c.begun {
		c.flush()
	}
	return c.rest(silent)
}

// rest has the encoder append what is due and sends what there is.
func (c *copier) rest(silent time.Duration) (time.Duration, error) {
	b, wait := c.enc.AppendIdle(c.buf.b, silent)
	c.buf.b = b
	if len(b) > Headroom {
		c.flush()
	}
	if wait <= 0 {
		wait = forever
	}
	return wait, nil
}

func (c *copier) flush() {
	c.begun = true
	if c.broken == nil {
		c.broken = c.w.Flush(c.buf.b)
	}
	c.buf.b = c.buf.b[:Headroom]
}

// end has the last words said.
func (c *copier) end(ctx context.Context, err error) {
	if ctx.Err() != nil && !errors.Is(err, io.EOF) {
		// The source says only that it was told to stop.
		err = context.Cause(ctx)
		if kind.Is(err, kind.Canceled) {
			c.broken = err
			return
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	c.buf.b = c.enc.AppendEnd(c.buf.b, err)
	c.broken = c.w.End(c.buf.b)
}
