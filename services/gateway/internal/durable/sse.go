package durable

import (
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/record"
	"github.com/millrace/millrace/services/gateway/internal/stream"
	"github.com/millrace/millrace/services/gateway/internal/textenc"
)

const (
	// maxData is the size at which a data event ends and the next begins.
	maxData = 256 << 10
	// keepalive is the interval of keepalives.
	keepalive = 15 * time.Second
)

// sse streams the record for h.cycle; then the client reconnects.
func (h *Handler) sse(c *fiber.Ctx, id process.ID, o record.Opened, cursor string) error {
	enc := &encoder{after: o.After, tip: o.Tail.Last, cursor: cursor, keepalive: textenc.NewKeepaliveTimer(keepalive)}
	head := stream.Head{
		ContentType: textenc.ContentTypeSSE,
		Headers:     record.StreamHeaders(id, o.After),
		Timeout:     h.cycle,
	}
	return h.streams.Serve(c, head, o.Source, enc)
}

// encoder encodes a record as the protocol's data and control events: a control event
// after each batch has the next offset.
type encoder struct {
	after     process.Seq
	tip       process.Seq // end of the record when the read began: from there on it is up to date
	cursor    string
	keepalive textenc.KeepaliveTimer
	open      int  // size of the open data event; 0: none
	sent      bool // a control event with the current offset was sent
	closed    bool // that event reported the end of the stream
}

// AppendEvent appends a message to the open data event, or begins one.
func (n *encoder) AppendEvent(dst []byte, e process.Event) ([]byte, error) {
	before := len(dst)
	if n.open == 0 {
		dst = append(dst, "event: data\ndata: ["...)
	} else {
		dst = append(dst, ",\ndata: "...)
	}
	dst = textenc.AppendEvent(dst, &e)
	n.after, n.sent = e.Seq, false
	n.open += len(dst) - before
	if _, fin := e.Body.(process.Finished); fin || n.open >= maxData {
		dst = n.control(dst, fin)
	}
	return dst, nil
}

// control ends the data event and sends the offset.
func (n *encoder) control(dst []byte, closed bool) []byte {
	if n.open > 0 {
		dst = append(dst, "]\n\n"...)
		n.open = 0
	}
	n.sent, n.closed = true, closed
	n.keepalive.Sent()
	dst = append(dst, `event: control`+"\ndata: "+`{"streamNextOffset":"`...)
	dst = appendOffset(dst, n.after)
	dst = append(dst, '"')
	if !closed {
		dst = append(dst, `,"streamCursor":"`...)
		dst = append(dst, n.cursor...)
		dst = append(dst, '"')
	}
	if n.after >= n.tip {
		dst = append(dst, `,"upToDate":true`...)
	}
	if closed {
		dst = append(dst, `,"streamClosed":true`...)
	}
	return append(dst, "}\n\n"...)
}

// AppendIdle ends a batch. At the start it reports that there are no more events yet, and
// while idle it sends keepalives.
func (n *encoder) AppendIdle(dst []byte, _ time.Duration) ([]byte, time.Duration) {
	if !n.sent && (n.open > 0 || n.after >= n.tip) {
		dst = n.control(dst, false)
	}
	due, wait := n.keepalive.Due(time.Now())
	if due {
		dst = textenc.AppendComment(dst, "keepalive")
	}
	return dst, wait
}

// AppendEnd ends the open event. The end of the record closes the stream. After any other
// end the client reconnects from the last offset and then receives the error.
func (n *encoder) AppendEnd(dst []byte, err error) []byte {
	switch {
	case err == nil && !n.closed:
		return n.control(dst, true)
	case n.open > 0:
		return n.control(dst, false)
	}
	return dst
}
