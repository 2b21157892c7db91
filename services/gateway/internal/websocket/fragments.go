package websocket

import "encoding/binary"

// fragments counts the frames of each message in what a client sends: the library limits the
// size of a message, but not the number of its frames, which may be empty. Other errors are
// left to the library. The zero value is at the start of the first frame.
type fragments struct {
	count int           // frames of the current message
	head  [maxHead]byte // head of the current frame, as far as it has arrived
	have  int           // bytes in head
	rest  uint64        // bytes of the payload that have not arrived
}

// scan reads the next bytes and returns how many of them precede the first frame that exceeds
// the limit: all, if none does.
func (f *fragments) scan(p []byte, limit int) int {
	for i := 0; i < len(p); {
		if f.rest > 0 {
			n := min(f.rest, uint64(len(p)-i))
			f.rest -= n
			i += int(n)
			continue
		}
		if f.have == 0 && !f.begin(p[i], limit) {
			return i
		}
		f.head[f.have] = p[i]
		f.have++
		i++
		if n := f.length(); f.have == n {
			f.rest, f.have = f.payload(), 0
		}
	}
	return len(p)
}

// begin counts a frame by its first byte and reports whether it is within the limit.
func (f *fragments) begin(first byte, limit int) bool {
	switch opcode := first & opMask; {
	case opcode >= opClose:
		return true
	case opcode != 0:
		f.count = 0
	}
	f.count++
	return f.count <= limit
}

// length returns the length of the head, as far as it is known.
func (f *fragments) length() int {
	if f.have < smallHead {
		return smallHead
	}
	n := smallHead
	switch f.head[1] &^ masked {
	case len16:
		n = mediumHead
	case len64:
		n = largeHead
	}
	if f.head[1]&masked != 0 {
		n += maskLength
	}
	return n
}

// payload returns the length of the payload; the head is complete.
func (f *fragments) payload() uint64 {
	switch n := f.head[1] &^ masked; n {
	case len16:
		return uint64(binary.BigEndian.Uint16(f.head[smallHead:]))
	case len64:
		return binary.BigEndian.Uint64(f.head[smallHead:])
	default:
		return uint64(n)
	}
}
