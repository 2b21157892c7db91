package sse

import (
	"io"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/textenc"
)

// keepalive is the interval of comments on a quiet stream.
const keepalive = 15 * time.Second

// Encoder encodes the events of a [Source]. It implements stream.Encoder. The data of all events is
// JSON, because clients decode it without looking at the name.
type Encoder struct{ timer textenc.KeepaliveTimer }

// NewEncoder returns an encoder for one stream.
func NewEncoder() *Encoder { return &Encoder{textenc.NewKeepaliveTimer(keepalive)} }

// AppendEvent appends an event. The end of a task ends the stream.
func (n *Encoder) AppendEvent(dst []byte, e process.Event) ([]byte, error) {
	b, ok := e.Body.(carried)
	if !ok {
		return dst, kind.Newf(kind.Internal, "encode event", "", "%T in events of sessions", e.Body)
	}
	n.timer.Sent()
	// Lines end with CR and LF, as those of Backend.AI's servers.
	if b.Cursor != (Cursor{}) {
		dst = append(append(append(dst, "id: "...), b.Cursor.String()...), "\r\n"...)
	}
	dst = append(append(append(dst, "event: "...), b.Name...), "\r\ndata: "...)
	dst = append(append(dst, b.Data...), "\r\n\r\n"...)
	if b.Name == closing {
		return dst, io.EOF
	}
	return dst, nil
}

// AppendIdle appends a comment when one is due.
func (n *Encoder) AppendIdle(dst []byte, _ time.Duration) ([]byte, time.Duration) {
	due, wait := n.timer.Due(time.Now())
	if due {
		dst = append(dst, ": keepalive\r\n\r\n"...)
	}
	return dst, wait
}

// AppendEnd appends nothing: a client reconnects with the id of its last event.
func (*Encoder) AppendEnd(dst []byte, _ error) []byte { return dst }
