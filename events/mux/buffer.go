package mux

// buffer is bytes that come in at one end and leave at the other. Whoever uses it
// bounds it.
type buffer struct {
	b   []byte
	off int
}

func (b *buffer) len() int { return len(b.b) - b.off }

// put copies p in.
func (b *buffer) put(p []byte) {
	if len(b.b)+len(p) > cap(b.b) && b.off >= len(b.b)/2 {
		b.b = b.b[:copy(b.b, b.b[b.off:])]
		b.off = 0
	}
	b.b = append(b.b, p...)
}

// head is at most n of the bytes that leave next; they are the buffer's.
func (b *buffer) head(n int) []byte { return b.b[b.off : b.off+min(n, b.len())] }

// drop takes off what head gave. What is empty keeps room for a frame, and no more:
// it may be idle for long, and there are many.
func (b *buffer) drop(n int) {
	switch b.off += n; {
	case b.off < len(b.b):
	case cap(b.b) > maxChunk:
		b.free()
	default:
		b.b, b.off = b.b[:0], 0
	}
}

func (b *buffer) free() { b.b, b.off = nil, 0 }
