package output

// The sizes of the memory of output.
const (
	smallGrow      = 4 << 10 // an event that grows beyond this gets a whole block
	minSpareBlocks = 4       // kept when nothing is spooled
	maxSpareBlocks = 64
)

// grow makes space in data for n more bytes.
func (b *Buffer) grow(data []byte, n int) []byte {
	if len(data)+n <= cap(data) || len(data)+n <= smallGrow {
		return data
	}
	block := b.getBlock()
	return block[:copy(block[:], data)]
}

// getBlock returns memory for output. It is not a sync.Pool, because the frequent
// collections of a small heap would empty that each time.
func (b *Buffer) getBlock() *[blockSize]byte {
	if n := len(b.blocks); n > 0 {
		block := b.blocks[n-1]
		b.blocks = b.blocks[:n-1]
		return block
	}
	return new([blockSize]byte)
}

// putBlock takes a block back and keeps about as many as are in use.
func (b *Buffer) putBlock(block *[blockSize]byte) {
	keep := min(minSpareBlocks+b.bytes/blockSize, maxSpareBlocks)
	if len(b.blocks) < keep {
		b.blocks = append(b.blocks, block)
		return
	}
	clear(b.blocks[keep:])
	b.blocks = b.blocks[:keep]
}

// free takes back the memory of an event's output.
func (b *Buffer) free(data []byte) {
	if cap(data) == blockSize {
		b.putBlock((*[blockSize]byte)(data[:blockSize]))
	}
}

func (b *Buffer) freeExtent(x extent) { b.disk.free(x) }
