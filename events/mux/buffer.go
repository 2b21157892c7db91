package mux

// buffer is a queue of bytes. Its user bounds it.
type buffer struct {
	b   []byte
	off int
}

func (b *buffer) len() int { return len(b.b) - b.off }

// put appends a copy of p.
func (b *buffer) put(p []byte) {
	if len(b.b)+len(p) > cap(b.b) && b.off >= len(b.b)/2 {
		b.b = b.b[:copy(b.b, b.b[b.off:])]
		b.off = 0
	}
	b.b = append(b.b, p...)
}

// head returns at most n of the next bytes. They share the buffer's memory.
func (b *buffer) head(n int) []byte { return b.b[b.off : b.off+min(n, b.len())] }

// drop removes n bytes from the front. An empty buffer keeps memory for one frame at most:
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
