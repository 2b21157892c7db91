package textenc

import (
	"strconv"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
)

// Reconnect reports whether a stream that ended with err is to be asked for
// again with its place: the gateway goes away, or the request's time ran out.
func Reconnect(err error) bool { return kind.Is(err, kind.Unavailable) || kind.Is(err, kind.Deadline) }

// AppendLast appends the object that ends a stream early, without a line end:
// {"type":"reconnect","after":N} or {"type":"error",...,"after":N}. It has no
// seq: it is no event. after is the last event the client was given.
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

// AppendKeepalive appends the object that is sent in silence, without a line end.
func AppendKeepalive(dst []byte, after process.Seq) []byte {
	dst = append(dst, `{"type":"keepalive","after":`...)
	dst = strconv.AppendUint(dst, after, 10)
	return append(dst, '}')
}
