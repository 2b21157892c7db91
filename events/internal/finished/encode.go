package finished

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"

	"github.com/klauspost/compress/s2"
)

// Chunk is a chunk of a set that does not change any more, except that processes of it may be
// removed. It is the unit in which a set is stored. Its methods may be called without the lock of
// the set.
type Chunk struct {
	name string // of its encoding
	keys []key
	data []byte
	base uint64
}

// formatVersion is the first byte of an encoded chunk.
const formatVersion = 1

// maxChunk bounds the bytes that a chunk is decoded to: those of its processes, the last of which
// may be as large as a command.
const maxChunk = maxBytes + 4<<20 + MaxSlots*keySize

// keySize is the number of bytes of an encoded key.
const keySize = 8*3 + 4*5

// Name returns the name of a chunk, which is a hash of its encoding.
func (c *Chunk) Name() string {
	if c.name == "" {
		c.name = NameOf(c.Encode())
	}
	return c.name
}

// NameOf returns the name of the chunk with the given encoding.
func NameOf(encoded []byte) string {
	sum := sha256.Sum256(encoded)
	return hex.EncodeToString(sum[:])
}

// Encode returns the encoding of a chunk. It is always the same.
func (c *Chunk) Encode() []byte {
	b := make([]byte, 0, 32+len(c.keys)*keySize+len(c.data))
	b = append(b, formatVersion)
	b = binary.AppendUvarint(b, c.base)
	b = binary.AppendUvarint(b, uint64(len(c.keys)))
	for i := range c.keys {
		k := &c.keys[i]
		for _, u := range []uint64{uint64(k.at), k.hi, k.lo} {
			b = binary.LittleEndian.AppendUint64(b, u)
		}
		for _, u := range []uint32{k.rev, k.pid, k.tenant, k.sandbox, k.rest} {
			b = binary.LittleEndian.AppendUint32(b, u)
		}
	}
	return s2.Encode(nil, append(b, c.data...))
}

var errFormat = errors.New("chunk of another format")

// DecodeChunk reverses Encode. The caller has compared the chunk's name.
func DecodeChunk(encoded []byte) (*Chunk, error) {
	if n, err := s2.DecodedLen(encoded); err != nil || n > maxChunk {
		return nil, errFormat
	}
	b, err := s2.Decode(nil, encoded)
	if err != nil {
		return nil, err
	}
	if len(b) == 0 || b[0] != formatVersion {
		return nil, errFormat
	}
	b = b[1:]
	base, n := binary.Uvarint(b)
	if n <= 0 {
		return nil, errFormat
	}
	b = b[n:]
	count, n := binary.Uvarint(b)
	if n <= 0 || count == 0 || count > MaxSlots || uint64(len(b)-n) < count*keySize {
		return nil, errFormat
	}
	b = b[n:]
	c := &Chunk{name: NameOf(encoded), base: base, keys: make([]key, count)}
	for i := range c.keys {
		u64 := func(at int) uint64 { return binary.LittleEndian.Uint64(b[at:]) }
		u32 := func(at int) uint32 { return binary.LittleEndian.Uint32(b[at:]) }
		c.keys[i] = key{
			at: int64(u64(0)), hi: u64(8), lo: u64(16),
			rev: u32(24), pid: u32(28), tenant: u32(32), sandbox: u32(36), rest: u32(40),
		}
		b = b[keySize:]
	}
	c.data = append(make([]byte, 0, len(b)), b...)
	return c, nil
}

// Chunks returns the chunks of a set, of which none grows: see [Set.Put].
func (s *Set) Chunks() []*Chunk {
	var all []*Chunk
	for _, number := range s.sequence() {
		c := s.chunks[number]
		if c.stored == nil {
			c.stored = &Chunk{keys: c.keys, data: c.data, base: c.base}
		}
		all = append(all, c.stored)
	}
	return all
}

// Add adds the processes of a chunk as Put does, one after another.
func (s *Set) Add(c *Chunk) {
	s.Seal()
	number := s.place(&chunk{keys: c.keys, data: c.data, base: c.base, stored: c})
	for slot := range c.keys {
		s.chunks[number].live++
		s.index(ref(number)<<slotBits | ref(slot))
	}
	s.release(number)
}
