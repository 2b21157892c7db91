package textenc

import (
	"encoding/binary"
	"unicode/utf8"
)

const (
	lows  = 0x0101010101010101
	highs = 0x8080808080808080
	hex   = "0123456789abcdef"
)

// AppendText appends b as a JSON string with its quotes.
func AppendText(dst, b []byte) []byte {
	dst = append(dst, '"')
	dst = AppendEscaped(dst, b)
	return append(dst, '"')
}

// AppendString is like [AppendText] for a string.
func AppendString(dst []byte, s string) []byte { return AppendText(dst, []byte(s)) }

// AppendEscaped appends b as the inside of a JSON string. Parts that end between runes
// may be appended one after the other.
func AppendEscaped(dst, b []byte) []byte {
	start := 0
	for i := 0; i < len(b); {
		if i+8 <= len(b) && plain(binary.LittleEndian.Uint64(b[i:])) {
			i += 8
			continue
		}
		c := b[i]
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRune(b[i:])
			if r == utf8.RuneError && size == 1 {
				dst = append(dst, b[start:i]...)
				dst = append(dst, "\uFFFD"...)
				start = i + 1
			}
			i += size
			continue
		}
		i++
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, b[start:i-1]...)
		dst = appendEscape(dst, c)
		start = i
	}
	return append(dst, b[start:]...)
}

// plain reports whether none of the eight bytes of x is a control character, a
// quote, a backslash or beyond ASCII.
func plain(x uint64) bool {
	quote, back := x^(lows*'"'), x^(lows*'\\')
	return (x|(x-lows*' ')|(quote-lows)|(back-lows))&highs == 0
}

func appendEscape(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	case '\b':
		return append(dst, '\\', 'b')
	case '\f':
		return append(dst, '\\', 'f')
	}
	return append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
}
