package textenc

import "unicode/utf8"

// Decoder holds back the beginning of an incomplete rune, at most three bytes, so that a
// rune split between two frames is not decoded in parts. It belongs to one stream of
// output. The zero value is ready to use.
type Decoder struct {
	pending [utf8.UTFMax - 1]byte
	count   uint8 // bytes held back
	done    [utf8.UTFMax]byte
}

// Feed returns the text that is complete with b: first the bytes held back, completed,
// then a part of b. Both end between runes, and are valid until the next call.
func (d *Decoder) Feed(b []byte) (head, body []byte) {
	if d.count > 0 {
		if head, b = d.complete(b); head == nil {
			return nil, nil
		}
	}
	cut := len(b) - partialRuneLen(b)
	d.count = uint8(copy(d.pending[:], b[cut:]))
	return head, b[:cut]
}

// complete adds bytes of b to those held back until they are a rune or cannot become one.
// It returns nil while they may still become one.
func (d *Decoder) complete(b []byte) (head, rest []byte) {
	buf := append(d.done[:0], d.pending[:d.count]...)
	for i, c := range b {
		buf = append(buf, c)
		if !utf8.FullRune(buf) {
			continue
		}
		if r, size := utf8.DecodeRune(buf); r == utf8.RuneError && size == 1 {
			return buf[:len(buf)-1], b[i:] // c begins another rune
		}
		return buf, b[i+1:]
	}
	d.count = uint8(copy(d.pending[:], buf))
	return nil, nil
}

// Flush returns the bytes held back at the end of a stream, which are not text.
func (d *Decoder) Flush() []byte {
	b := d.pending[:d.count]
	d.count = 0
	return b
}

// partialRuneLen returns the number of bytes at the end of b that begin an incomplete rune.
func partialRuneLen(b []byte) int {
	for i := 1; i < utf8.UTFMax && i <= len(b); i++ {
		if tail := b[len(b)-i:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				return i
			}
			return 0
		}
	}
	return 0
}

// CutLen returns the length of the longest prefix of b, at most limit bytes, that does not
// split a rune. limit must be at least utf8.UTFMax.
func CutLen(b []byte, most int) int {
	if len(b) <= most {
		return len(b)
	}
	return most - partialRuneLen(b[:most])
}
