package jsonrpc

import (
	"encoding/json"
	"strconv"
	"unicode/utf8"
)

// AppendResult appends an answer with a result, which is JSON.
func AppendResult(dst, id, result []byte) []byte {
	dst = OpenResult(dst, id)
	dst = append(dst, result...)
	return append(dst, '}')
}

// OpenResult appends an answer up to its result. The caller appends the JSON of the result and
// a closing brace.
func OpenResult(dst, id []byte) []byte {
	dst = append(dst, `{"id":`...)
	dst = append(dst, id...)
	return append(dst, `,"result":`...)
}

// AppendError appends an answer with an error. A nil id means that the message had none that
// could be read.
func AppendError(dst, id []byte, e *Error) []byte {
	dst = append(dst, `{"error":{"code":`...)
	dst = strconv.AppendInt(dst, int64(e.Code), 10)
	dst = append(dst, `,"message":`...)
	dst = AppendString(dst, e.Message)
	dst = append(dst, `},"id":`...)
	if id == nil {
		dst = append(dst, NoID...)
	} else {
		dst = append(dst, id...)
	}
	return append(dst, '}')
}

// AppendNotification appends a notification with parameters, which are JSON.
func AppendNotification(dst []byte, method string, params []byte) []byte {
	dst = append(dst, `{"method":`...)
	dst = AppendString(dst, method)
	dst = append(dst, `,"params":`...)
	dst = append(dst, params...)
	return append(dst, '}')
}

// AppendString appends a JSON string.
func AppendString(dst []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= utf8.RuneSelf || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' || c == 0x7f {
			quoted, err := json.Marshal(s)
			if err != nil {
				quoted = []byte(`""`) // cannot happen for a string
			}
			return append(dst, quoted...)
		}
	}
	dst = append(dst, '"')
	dst = append(dst, s...)
	return append(dst, '"')
}
