package stream

import (
	"context"
	"time"

	"github.com/millrace/millrace/events/process"
)

// Encoder writes one record in one protocol. It belongs to one stream and one
// goroutine, and may keep state (a half line, half a rune). Its methods append
// to dst, which they must not keep.
type Encoder interface {
	// AppendEvent appends what e is in the protocol, which may be nothing. An
	// error ends the stream: AppendEnd is called with it. io.EOF is a good end.
	AppendEvent(dst []byte, e process.Event) ([]byte, error)

	// AppendIdle appends what is due after silent without an event: half a
	// line, a keepalive. It is called at the start and after each batch, with
	// silent 0, and then as often as it asks for: it returns how much longer it
	// can wait (0 or less: for ever).
	AppendIdle(dst []byte, silent time.Duration) ([]byte, time.Duration)

	// AppendEnd appends the last words. A nil err is a good end. Of the kinds,
	// Unavailable is a drain (the client is to come back with its place), and
	// Deadline the end of the time the request was given.
	AppendEnd(dst []byte, err error) []byte
}

// Source is what Copy reads: a *events.Reader.
type Source interface {
	// Next gives at least one event, or none after idle of silence, or io.EOF
	// after the last. The events are shared and must not be changed.
	Next(ctx context.Context, idle time.Duration) ([]process.Event, error)
	// After is the seq of the last event given.
	After() process.Seq
	// Close lets go of the record. Next must not be called again.
	Close()
}

// Headroom is the scratch space that a Writer finds before the bytes it is to
// send: room for the size of an HTTP chunk or the head of a websocket frame.
const Headroom = 16

// Writer sends flushes to a client. It belongs to one goroutine.
type Writer interface {
	// Flush sends buf[Headroom:] at once and whole. buf[:Headroom] and the
	// capacity past its length are the Writer's to use; buf is the caller's
	// again when Flush returns. An error means that the client is gone.
	Flush(buf []byte) error
	// End is the last Flush: it says in the transport's words, too, that
	// nothing follows. The payload may be empty.
	End(buf []byte) error
}
