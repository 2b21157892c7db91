package textenc

import (
	"encoding/base64"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
)

// AppendEvent appends e as one JSON object without a line end: seq, time, type, and the
// members of that type. Output has offset and either data, if the frame's bytes are
// complete UTF-8, or data_b64.
func AppendEvent(dst []byte, e *process.Event) []byte {
	dst = append(dst, `{"seq":`...)
	dst = strconv.AppendUint(dst, e.Seq, 10)
	dst = append(dst, `,"time":"`...)
	dst = AppendTime(dst, e.Time)
	dst = append(dst, `","type":"`...)
	dst = append(dst, e.Type()...)
	dst = append(dst, '"')
	dst = appendBody(dst, e.Body)
	return append(dst, '}')
}

// AppendTime appends t in UTC, to the nanosecond.
func AppendTime(dst []byte, t time.Time) []byte {
	return t.UTC().AppendFormat(dst, time.RFC3339Nano)
}

func appendBody(dst []byte, body process.Body) []byte {
	switch b := body.(type) {
	case process.Wrote:
		dst = append(dst, `,"offset":`...)
		dst = strconv.AppendUint(dst, b.Offset, 10)
		return AppendData(dst, b.Data)
	case process.Accepted:
		dst = appendSpec(dst, &b.Spec)
		if b.From == "" {
			return dst
		}
		return appendUint(appendText(dst, "from", string(b.From)), "after", b.After)
	case process.Started:
		return appendUint(dst, "pid", uint64(b.PID))
	case process.StdinAcked:
		dst = appendUint(dst, "offset", b.Offset)
		return appendTrue(dst, "eof", b.EOF)
	case process.Resized:
		return appendSize(dst, b.Size)
	case process.Signaled:
		return appendInt(dst, "signal", int64(b.Signal))
	case process.Truncated:
		dst = appendText(dst, "stream", b.Stream.String())
		return appendUint(dst, "dropped", b.Dropped)
	case process.Omitted:
		dst = appendText(dst, "stream", b.Stream.String())
		dst = appendUint(dst, "offset", b.Offset)
		return appendUint(dst, "bytes", b.Bytes)
	case process.Gap:
		dst = appendUint(dst, "from", b.From)
		dst = appendUint(dst, "to", b.To)
		return appendText(dst, "reason", b.Reason)
	case process.Exited:
		return AppendExit(dst, &b.Exit)
	case process.Finished:
		return AppendExit(dst, &b.Exit)
	case process.Lost:
		return appendText(dst, "reason", b.Reason)
	case process.Failed:
		dst = appendText(dst, "error_code", Code(kind.Kind(b.Kind)))
		return appendText(dst, "message", b.Message)
	}
	return dst
}

// AppendData appends a member data or data_b64 with a comma before it.
func AppendData(dst, b []byte) []byte {
	if utf8.Valid(b) {
		dst = append(dst, `,"data":"`...)
		dst = AppendEscaped(dst, b)
		return append(dst, '"')
	}
	dst = append(dst, `,"data_b64":"`...)
	dst = base64.StdEncoding.AppendEncode(dst, b)
	return append(dst, '"')
}

// ExitCode returns the exit code for clients: that of the process, -1 if a signal ended
// it, none if its exit was not observed.
func ExitCode(x *process.Exit) (code int32, seen bool) {
	switch {
	case x.Code != nil:
		return *x.Code, true
	case x.Signal != 0:
		return -1, true
	}
	return 0, false
}

// AppendExit appends the members exit_code, signal and cause, and message if there is one,
// with a comma before each. Unknown values are null.
func AppendExit(dst []byte, x *process.Exit) []byte {
	dst = append(dst, `,"exit_code":`...)
	if code, seen := ExitCode(x); seen {
		dst = strconv.AppendInt(dst, int64(code), 10)
	} else {
		dst = append(dst, "null"...)
	}
	dst = append(dst, `,"signal":`...)
	if x.Signal != 0 {
		dst = strconv.AppendInt(dst, int64(x.Signal), 10)
	} else {
		dst = append(dst, "null"...)
	}
	dst = appendText(dst, "cause", string(x.Cause))
	if x.Message != "" {
		dst = appendText(dst, "message", x.Message)
	}
	return dst
}

func appendSpec(dst []byte, s *process.Spec) []byte {
	dst = appendText(dst, "cmd", s.Cmd)
	dst = append(dst, `,"args":[`...)
	for i, a := range s.Args {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = AppendString(dst, a)
	}
	dst = append(dst, ']')
	if s.Cwd != "" {
		dst = appendText(dst, "cwd", s.Cwd)
	}
	if s.User != "" {
		dst = appendText(dst, "user", s.User)
	}
	if s.Tag != nil {
		dst = appendText(dst, "tag", *s.Tag)
	}
	if s.PTY != nil {
		dst = append(dst, `,"pty":{`...)
		at := len(dst)
		dst = appendSize(dst, *s.PTY)
		dst = append(dst[:at], dst[at+1:]...) // the first member has no comma
		dst = append(dst, '}')
	}
	dst = appendTrue(dst, "stdin", s.Stdin)
	if s.Timeout != 0 {
		dst = appendInt(dst, "timeout_ms", s.Timeout.Milliseconds())
	}
	return dst
}

func appendSize(dst []byte, s process.Size) []byte {
	dst = appendUint(dst, "cols", uint64(s.Cols))
	return appendUint(dst, "rows", uint64(s.Rows))
}

func appendName(dst []byte, name string) []byte {
	dst = append(dst, ',', '"')
	dst = append(dst, name...)
	return append(dst, '"', ':')
}

func appendText(dst []byte, name, s string) []byte { return AppendString(appendName(dst, name), s) }
func appendUint(dst []byte, name string, u uint64) []byte {
	return strconv.AppendUint(appendName(dst, name), u, 10)
}
func appendInt(dst []byte, name string, i int64) []byte {
	return strconv.AppendInt(appendName(dst, name), i, 10)
}

func appendTrue(dst []byte, name string, b bool) []byte {
	if !b {
		return dst
	}
	return append(appendName(dst, name), "true"...)
}
