package websocket

import (
	"context"

	"github.com/millrace/millrace/services/gateway/internal/recovery"
	"github.com/millrace/millrace/services/gateway/internal/stream"
)

// Flush sends the messages in buf[stream.Headroom:] at once. The encoder makes them with
// [BeginMessage] and [EndMessage], so that one flush may contain several. With [Conn.End] it
// makes Conn a [stream.Writer]. Several streams may share a connection.
func (c *Conn) Flush(buf []byte) error {
	if len(buf) == stream.Headroom {
		return nil
	}
	return c.wire.send(buf[stream.Headroom:])
}

// End is Flush: the end of a record is a message of the protocol, and the connection may be
// used for others.
func (c *Conn) End(buf []byte) error { return c.Flush(buf) }

// Stream sends a record by [stream.Copy], which ends with the record, with ctx, or when the client
// leaves, and closes src. Received messages are discarded. It may be called if no other goroutine
// reads.
func (c *Conn) Stream(ctx context.Context, src stream.Source, enc stream.Encoder) error {
	defer src.Close()
	go recovery.Do(c.server.streams.Log(), "websocket", c.Discard) //nolint:errcheck // ends with the connection
	return stream.Copy(ctx, c, src, enc)
}
