package client

import (
	"bytes"
	"strconv"
	"unicode/utf8"
)

// decodeOutput decodes an output event, by far the most frequent line, if it has the layout that
// the gateway writes and only common escapes. It returns false for every other line, which
// encoding/json then decodes.
func decodeOutput(line []byte, e *Event) bool {
	rest, ok := bytes.CutPrefix(line, []byte(`{"seq":`))
	if !ok {
		return false
	}
	seq, rest, ok := number(rest)
	if !ok {
		return false
	}
	if rest, ok = bytes.CutPrefix(rest, []byte(`,"time":"`)); !ok {
		return false
	}
	i := bytes.IndexByte(rest, '"')
	if i < 0 {
		return false
	}
	stamp, rest := rest[:i], rest[i:]
	kind := ""
	for _, k := range [...]string{"stdout", "stderr", "pty"} {
		if r, ok := bytes.CutPrefix(rest, []byte(`","type":"`+k+`","offset":`)); ok {
			kind, rest = k, r
		}
	}
	if kind == "" {
		return false
	}
	offset, rest, ok := number(rest)
	if !ok {
		return false
	}
	if rest, ok = bytes.CutPrefix(rest, []byte(`,"data":"`)); !ok {
		return false
	}
	data, ok := unescape(rest)
	if !ok || e.Time.UnmarshalText(stamp) != nil {
		return false
	}
	e.Seq, e.Type, e.Offset, e.out = seq, kind, offset, data
	return true
}

func number(b []byte) (uint64, []byte, bool) {
	i := 0
	for i < len(b) && b[i] >= '0' && b[i] <= '9' {
		i++
	}
	n, err := strconv.ParseUint(string(b[:i]), 10, 64)
	return n, b[i:], err == nil
}

// unescape decodes the content of a JSON string up to its end, which must also end the
// object and the line.
func unescape(b []byte) ([]byte, bool) {
	out := make([]byte, 0, len(b))
	for {
		i := bytes.IndexAny(b, `"\`)
		if i < 0 {
			return nil, false
		}
		out = append(out, b[:i]...)
		if b[i] == '"' {
			if string(b[i:]) != "\"}\n" || !utf8.Valid(out) {
				return nil, false
			}
			return out, true
		}
		if i+1 >= len(b) {
			return nil, false
		}
		c, ok := escapes(b[i+1])
		if !ok {
			return nil, false
		}
		out, b = append(out, c), b[i+2:]
	}
}

func escapes(c byte) (byte, bool) {
	switch c {
	case 'n':
		return '\n', true
	case 'r':
		return '\r', true
	case 't':
		return '\t', true
	case '"', '\\', '/':
		return c, true
	}
	return 0, false
}
