package stream

import (
	"context"
	"time"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/httpconn"
)

// Encoder encodes one record in one protocol. It belongs to one stream and one
// goroutine, and may keep state (a partial line or rune). Its methods append to
// dst and must not keep it.
type Encoder interface {
	// AppendEvent appends the protocol's encoding of e, which may be empty. An
	// error ends the stream and is passed to AppendEnd. io.EOF ends it in order.
	AppendEvent(dst []byte, e process.Event) ([]byte, error)

	// AppendIdle appends data that is due after silent without an event: a partial
	// line, a keepalive. It is called at the start and after each batch with
	// silent 0, and then whenever the returned duration has passed (0 or less:
	// not until the next event).
	AppendIdle(dst []byte, silent time.Duration) ([]byte, time.Duration)

	// AppendEnd appends the end of the stream. A nil err is an orderly end.
	// Unavailable means a drain (the client should reconnect with its cursor);
	// Deadline means that the request timed out.
	AppendEnd(dst []byte, err error) []byte
}

// Source is what [Copy] reads, such as an [record.Reader].
type Source interface {
	// Next returns at least one event, or none after idle without an event, or
	// io.EOF after the last. The events are shared and must not be modified.
	Next(ctx context.Context, idle time.Duration) ([]process.Event, error)
	// After returns the seq of the last event returned.
	After() process.Seq
	// Close releases the record. Next must not be called again.
	Close()
}

// Headroom is the scratch space that a Writer has before the payload, for the
// size of an HTTP chunk or a websocket frame header.
const Headroom = httpconn.Headroom

// Writer sends flushes to a client. It belongs to one goroutine.
type Writer interface {
	// Flush sends all of buf[Headroom:] at once. The Writer may overwrite
	// buf[:Headroom] and the capacity beyond len(buf). The caller owns buf
	// again when Flush returns. An error means that the client is gone.
	Flush(buf []byte) error
	// End is the last Flush and also ends the body in the transport's framing.
	// The payload may be empty.
	End(buf []byte) error
}
