package websocket

import (
	"encoding/binary"
	"testing"
)

// exceeded returns the place of the first frame that exceeds the limit, or len(p), by reading
// whole frames.
func exceeded(p []byte, limit int) int {
	count := 0
	for at := 0; at < len(p); {
		switch op := p[at] & 15; {
		case op >= 8:
		case op == 0:
			count++
		default:
			count = 1
		}
		if count > limit && p[at]&15 < 8 {
			return at
		}
		if len(p) < at+2 {
			return len(p)
		}
		head, n := 2, uint64(p[at+1]&127)
		if p[at+1]&128 != 0 {
			head += 4
		}
		switch rest := p[at+2:]; {
		case n == 126 && len(rest) >= 2:
			head, n = head+2, uint64(binary.BigEndian.Uint16(rest))
		case n == 127 && len(rest) >= 8:
			head, n = head+8, binary.BigEndian.Uint64(rest)
		case n >= 126:
			return len(p)
		}
		if left := len(p) - at; left <= head || uint64(left-head) < n {
			return len(p)
		}
		at += head + int(n)
	}
	return len(p)
}

// The result does not depend on how the bytes are split.
func FuzzFragments(f *testing.F) {
	f.Add([]byte{1, 0x80, 1, 2, 3, 4, 0, 0x80, 1, 2, 3, 4, 0x89, 0, 0x80, 0}, 2, 5)
	f.Add([]byte{2, 126, 0, 1, 'x', 0, 127, 0, 0, 0, 0, 0, 0, 0, 1, 'y', 0, 0}, 2, 1)
	f.Add([]byte{2, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1, 2, 3, 4, 5}, 1, 3)
	f.Add([]byte{0, 0, 0, 0, 0, 0}, 1, 1)
	f.Fuzz(func(t *testing.T, p []byte, limit, step int) {
		limit, step = min(max(limit, 1), 5), max(step, 1)
		var fr fragments
		got := 0
		for at := 0; at < len(p); {
			n := min(step, len(p)-at)
			ok := fr.scan(p[at:at+n], limit)
			if got += ok; ok < n {
				break
			}
			at += n
		}
		if want := exceeded(p, limit); got != want {
			t.Errorf("scan(% x), limit %d, in steps of %d: %d, want %d", p, limit, step, got, want)
		}
	})
}
