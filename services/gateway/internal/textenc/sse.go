package textenc

import (
	"strconv"

	"github.com/millrace/millrace/events/process"
)

// ContentTypeSSE and ContentTypeNDJSON are what streams of text are served as.
const (
	ContentTypeSSE    = "text/event-stream"
	ContentTypeNDJSON = "application/x-ndjson"
)

// RetryMillis is how long a browser is told to wait before it comes back.
const RetryMillis = 1000

// AppendSSE appends e as a server-sent event whose id is its seq and whose event
// is its type. The data is AppendEvent's, which has no line ends.
func AppendSSE(dst []byte, e *process.Event) []byte {
	dst = append(dst, "id: "...)
	dst = strconv.AppendUint(dst, e.Seq, 10)
	dst = append(dst, "\nevent: "...)
	dst = append(dst, e.Type()...)
	dst = append(dst, "\ndata: "...)
	dst = AppendEvent(dst, e)
	return append(dst, "\n\n"...)
}

// AppendRetry appends the wish that the client comes back soon.
func AppendRetry(dst []byte) []byte {
	dst = append(dst, "retry: "...)
	dst = strconv.AppendUint(dst, RetryMillis, 10)
	return append(dst, "\n\n"...)
}

// AppendComment appends a line that clients skip; it keeps a connection awake.
// text must not hold a line end.
func AppendComment(dst []byte, text string) []byte {
	dst = append(dst, ": "...)
	dst = append(dst, text...)
	return append(dst, "\n\n"...)
}
