package textenc

import (
	"strconv"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
)

// Reconnect reports whether the client should reconnect with its position after err: the
// gateway is shutting down, or the request timed out.
func Reconnect(err error) bool { return kind.Is(err, kind.Unavailable) || kind.Is(err, kind.Deadline) }

// AppendLast appends the object that ends a stream early, without a line end:
// {"type":"reconnect","after":N} or {"type":"error",...,"after":N}. It has no seq because
// it is not an event. after is the last event that the client received.
func AppendLast(dst []byte, err error, id process.ID, after process.Seq) []byte {
	if Reconnect(err) {
		dst = append(dst, `{"type":"reconnect"`...)
	} else {
		dst = append(dst, `{"type":"error"`...)
		dst = appendText(dst, "error_code", Code(kind.Of(err)))
		dst = appendText(dst, "message", kind.Message(err))
	}
	dst = appendText(dst, "process", string(id))
	dst = appendUint(dst, "after", after)
	return append(dst, '}')
}

// AppendKeepalive appends a keepalive object without a line end.
func AppendKeepalive(dst []byte, after process.Seq) []byte {
	dst = append(dst, `{"type":"keepalive","after":`...)
	dst = strconv.AppendUint(dst, after, 10)
	return append(dst, '}')
}
