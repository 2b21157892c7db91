package textenc

import (
	"strconv"

	"github.com/millrace/millrace/events/process"
)

// ContentTypeSSE and ContentTypeNDJSON are the content types of text streams.
const (
	ContentTypeSSE    = "text/event-stream"
	ContentTypeNDJSON = "application/x-ndjson"
)

// RetryMillis is the delay after which a browser should reconnect.
const RetryMillis = 1000

// AppendSSE appends e as a server-sent event with its seq as id and its type as event. The
// data is that of [AppendEvent], which has no line ends.
func AppendSSE(dst []byte, e *process.Event) []byte {
	dst = append(dst, "id: "...)
	dst = strconv.AppendUint(dst, e.Seq, 10)
	dst = append(dst, "\nevent: "...)
	dst = append(dst, e.Type()...)
	dst = append(dst, "\ndata: "...)
	dst = AppendEvent(dst, e)
	return append(dst, "\n\n"...)
}

// AppendMessage appends a server-sent event. id and data must not contain a line end; an empty id is
// omitted.
func AppendMessage(dst []byte, id, event string, data []byte) []byte {
	if id != "" {
		dst = append(append(append(dst, "id: "...), id...), '\n')
	}
	dst = append(append(append(dst, "event: "...), event...), "\ndata: "...)
	return append(append(dst, data...), "\n\n"...)
}

// AppendRetry appends the reconnection delay.
func AppendRetry(dst []byte) []byte {
	dst = append(dst, "retry: "...)
	dst = strconv.AppendUint(dst, RetryMillis, 10)
	return append(dst, "\n\n"...)
}

// AppendComment appends a line that clients skip, as a keepalive. text must not contain a
// line end.
func AppendComment(dst []byte, text string) []byte {
	dst = append(dst, ": "...)
	dst = append(dst, text...)
	return append(dst, "\n\n"...)
}
