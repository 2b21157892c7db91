package tail

import (
	"strconv"
	"time"

	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/textenc"
)

// encoder encodes a tail, as NDJSON or as Server-Sent Events.
type encoder struct {
	sse       bool
	after     time.Time // time of the last event
	keepalive textenc.KeepaliveTimer
}

// AppendEvent appends one event with the name of its record.
func (n *encoder) AppendEvent(dst []byte, e process.Event) ([]byte, error) {
	b, ok := e.Body.(carried)
	if !ok {
		return dst, kind.Newf(kind.Internal, "tail", "", "%T in a tail", e.Body)
	}
	n.after = e.Time
	n.keepalive.Sent()
	if !n.sse {
		return append(appendLine(dst, &b.event), '\n'), nil
	}
	dst = append(dst, "id: "...)
	dst = textenc.AppendTime(dst, e.Time)
	dst = append(dst, "\nevent: "...)
	dst = append(dst, typeOf(&b.event)...)
	dst = append(dst, "\ndata: "...)
	return append(appendLine(dst, &b.event), "\n\n"...), nil
}

// appendLine appends the name of e's record, then the event.
func appendLine(dst []byte, e *catalog.TailEvent) []byte {
	dst = append(dst, `{"record":`...)
	dst = textenc.AppendString(dst, e.Stream)
	dst = append(dst, `,"rev":`...)
	dst = strconv.AppendUint(dst, e.Rev, 10)
	dst = append(dst, `,"tenant":`...)
	dst = textenc.AppendString(dst, e.Tenant)
	dst = append(dst, `,"sandbox":`...)
	dst = textenc.AppendString(dst, string(e.Sandbox))
	if e.Process != nil {
		dst = append(dst, `,"process":`...)
		dst = textenc.AppendString(dst, string(e.ID))
		dst = append(dst, `,"host":`...)
		dst = textenc.AppendString(dst, e.Host)
	}
	at := len(dst)
	switch {
	case e.Process != nil:
		dst = textenc.AppendEvent(dst, e.Process)
	case e.Change != nil:
		dst = appendChange(dst, e.Change)
	default:
		return append(dst, '}')
	}
	dst[at] = ',' // the event's members become members of the line
	return dst
}

// AppendIdle appends a keepalive when one is due.
func (n *encoder) AppendIdle(dst []byte, _ time.Duration) ([]byte, time.Duration) {
	due, wait := n.keepalive.Due(time.Now())
	if !due {
		return dst, wait
	}
	if n.sse {
		return textenc.AppendComment(dst, "keepalive"), wait
	}
	dst = append(dst, `{"type":"keepalive"`...)
	return append(n.appendAfter(dst), "}\n"...), wait
}

// AppendEnd appends why the tail ended, unless it is complete.
func (n *encoder) AppendEnd(dst []byte, err error) []byte {
	if err == nil {
		return dst
	}
	name := "error"
	if textenc.Reconnect(err) {
		name = "reconnect"
	}
	if n.sse {
		if name == "reconnect" {
			dst = textenc.AppendRetry(dst)
		}
		dst = append(append(append(dst, "event: "...), name...), "\ndata: "...)
	}
	dst = append(append(append(dst, `{"type":"`...), name...), '"')
	if name == "error" {
		dst = append(dst, `,"error_code":`...)
		dst = textenc.AppendString(dst, textenc.Code(kind.Of(err)))
		dst = append(dst, `,"message":`...)
		dst = textenc.AppendString(dst, kind.Message(err))
	}
	dst = append(n.appendAfter(dst), "}\n"...)
	if n.sse {
		dst = append(dst, '\n')
	}
	return dst
}

func (n *encoder) appendAfter(dst []byte) []byte {
	dst = append(dst, `,"after":"`...)
	return append(textenc.AppendTime(dst, n.after), '"')
}
