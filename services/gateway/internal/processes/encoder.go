package processes

import (
	"time"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/textenc"
)

// lines encodes a record as NDJSON.
type lines struct {
	id    process.ID
	after process.Seq
	pulse textenc.KeepaliveTimer
}

// AppendEvent appends one line.
func (l *lines) AppendEvent(dst []byte, e process.Event) ([]byte, error) {
	l.after = e.Seq
	l.pulse.Sent()
	return append(textenc.AppendEvent(dst, &e), '\n'), nil
}

// AppendIdle appends a keepalive when one is due.
func (l *lines) AppendIdle(dst []byte, _ time.Duration) ([]byte, time.Duration) {
	due, wait := l.pulse.Due(time.Now())
	if due {
		dst = append(textenc.AppendKeepalive(dst, l.after), '\n')
	}
	return dst, wait
}

// AppendEnd appends nothing at the record's end, otherwise the reason why the stream ends.
func (l *lines) AppendEnd(dst []byte, err error) []byte {
	if err == nil {
		return dst
	}
	return append(textenc.AppendLast(dst, err, l.id, l.after), '\n')
}

// browser encodes a record as Server-Sent Events.
type browser struct {
	id    process.ID
	after process.Seq
	pulse textenc.KeepaliveTimer
}

// AppendEvent appends one event with its seq as id.
func (b *browser) AppendEvent(dst []byte, e process.Event) ([]byte, error) {
	b.after = e.Seq
	b.pulse.Sent()
	return textenc.AppendSSE(dst, &e), nil
}

// AppendIdle appends a comment when one is due.
func (b *browser) AppendIdle(dst []byte, _ time.Duration) ([]byte, time.Duration) {
	due, wait := b.pulse.Due(time.Now())
	if due {
		dst = textenc.AppendComment(dst, "keepalive")
	}
	return dst, wait
}

// AppendEnd makes a browser reconnect soon, or reports the error. Neither event has an id, so
// that the browser keeps the id of the last event.
func (b *browser) AppendEnd(dst []byte, err error) []byte {
	if err == nil {
		return dst
	}
	name := "event: error\ndata: "
	if textenc.Reconnect(err) {
		dst = textenc.AppendRetry(dst)
		name = "event: reconnect\ndata: "
	}
	dst = append(dst, name...)
	dst = textenc.AppendLast(dst, err, b.id, b.after)
	return append(dst, "\n\n"...)
}
