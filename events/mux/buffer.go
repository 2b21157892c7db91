package mux

import (
	"math/bits"
	"sync"
)

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
	if need := len(b.b) + len(p); need > max(cap(b.b), maxChunk) {
		larger := append(newBlock(need), b.b...)
		recycle(b.b)
		b.b = larger
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

func (b *buffer) free() {
	recycle(b.b)
	b.b, b.off = nil, 0
}

// blocks are the memory of freed buffers of more than maxChunk, by the logarithm of their
// size: a stream at full speed fills and empties its buffers all the time.
var blocks [bits.UintSize]sync.Pool

// newBlock returns an empty slice with a capacity of at least n and less than 2n.
func newBlock(n int) []byte {
	class := bits.Len(uint(n - 1))
	if b, ok := blocks[class].Get().(*[]byte); ok {
		return *b
	}
	return make([]byte, 0, 1<<class)
}

func recycle(b []byte) {
	if c := cap(b); c > maxChunk && c&(c-1) == 0 {
		b = b[:0]
		blocks[bits.Len(uint(c-1))].Put(&b)
	}
}
