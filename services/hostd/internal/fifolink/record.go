package fifolink

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"net"
)

// ErrBroken ends a connection whose stream lost or gained bytes.
var ErrBroken = errors.New("fifolink: stream is broken")

// The kinds of a record. None is zero, which is padding.
const (
	kindData = 0xd1
	kindEnd  = 0xe1 // the writer has closed the connection
	kindSync = 0x51
	kindOpen = 0x01 // the answer to a sync
)

const (
	headLen   = 8 // kind, length (3, little endian), sum (4)
	maxRecord = 32 << 10
	maxData   = maxRecord - headLen
	helloLen  = 1 + nonceLen // data of a sync and of its answer: version or aside, nonce
	nonceLen  = 16
	version   = 1
	aside     = 2 // instead of the version: another program answers

	batch = 8 * maxRecord // bytes of one write: each write wakes the other end
	small = 4 << 10       // buffer of an idle end
)

// sums returns the CRC table, which is computed only once.
func sums() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

// appendRecord appends a record whose sum continues sum, and returns its own sum. Its data
// is at most maxData bytes of bufs; the rest of bufs is returned.
func appendRecord(dst []byte, kind byte, sum uint32, bufs ...[]byte) ([]byte, uint32, [][]byte) {
	start := len(dst)
	dst = append(dst, kind, 0, 0, 0, 0, 0, 0, 0)
	space := maxData
	for len(bufs) > 0 && space > 0 {
		n := min(space, len(bufs[0]))
		dst = append(dst, bufs[0][:n]...)
		space -= n
		if n < len(bufs[0]) {
			bufs[0] = bufs[0][n:]
			break
		}
		bufs = bufs[1:]
	}
	head, n := dst[start:start+headLen], maxData-space
	head[1], head[2], head[3] = byte(n), byte(n>>8), byte(n>>16)
	sum = crc32.Update(crc32.Update(sum, sums(), head[:4]), sums(), dst[start+headLen:])
	binary.LittleEndian.PutUint32(head[4:], sum)
	return dst, sum, bufs
}

// parseRecord parses the record at the start of b. n is its length, or 0 if b has only a
// part of it. err is ErrBroken if the record does not follow sum.
func parseRecord(b []byte, sum uint32) (kind byte, data []byte, n int, err error) {
	if len(b) < headLen {
		return 0, nil, 0, nil
	}
	size := int(b[1]) | int(b[2])<<8 | int(b[3])<<16
	if size > maxData {
		return 0, nil, headLen, ErrBroken
	}
	if n = headLen + size; len(b) < n {
		return 0, nil, 0, nil
	}
	data = b[headLen:n]
	if sumOf(b) != crc32.Update(crc32.Update(sum, sums(), b[:4]), sums(), data) {
		return 0, nil, n, ErrBroken
	}
	return b[0], data, n, nil
}

// sumOf returns the sum in a record's head.
func sumOf(head []byte) uint32 { return binary.LittleEndian.Uint32(head[4:headLen]) }

// hello returns a sync, or the answer to it, and its sum; to is version or aside.
func hello(kind, to byte, nonce []byte) ([]byte, uint32) {
	b, sum, _ := appendRecord(nil, kind, 0, []byte{to}, nonce)
	return b, sum
}

// buffer holds the bytes that were read of a stream and not yet used. It stays small while little data
// arrives.
type buffer struct {
	mem        []byte
	start, end int
}

func (b *buffer) bytes() []byte { return b.mem[b.start:b.end] }

func (b *buffer) skip(n int) { b.start += n }

// fill reads once from r.
func (b *buffer) fill(r io.Reader) error {
	size := len(b.mem)
	switch used := b.end - b.start; {
	case size == 0 || used == 0 && b.end < small/2:
		size = small
	case used > size/2 || b.end == size:
		size = batch
	}
	if size != len(b.mem) {
		mem := make([]byte, size)
		b.end = copy(mem, b.bytes())
		b.mem, b.start = mem, 0
	} else if b.start > 0 {
		b.end = copy(b.mem, b.bytes())
		b.start = 0
	}
	n, err := r.Read(b.mem[b.end:])
	b.end += n
	if n > 0 {
		return nil // a permanent error is returned again
	}
	return err
}

// writer writes the records of one connection.
type writer struct {
	w   io.Writer
	sum uint32
	buf []byte
	err error // of a truncated write, which must be the last
}

// write writes all of bufs, which it modifies, in as few records and writes as possible.
func (w *writer) write(bufs [][]byte) error {
	for len(bufs) > 0 && w.err == nil {
		if len(w.buf)+maxRecord > batch {
			w.flush()
		}
		w.buf, w.sum, bufs = appendRecord(w.buf, kindData, w.sum, bufs...)
	}
	w.flush()
	return w.err
}

// end writes the last record. It returns the first error of all writes.
func (w *writer) end() error {
	if w.err != nil {
		return w.err
	}
	w.buf, _, _ = appendRecord(w.buf, kindEnd, w.sum)
	w.flush()
	err := w.err
	w.err = net.ErrClosed
	return err
}

func (w *writer) flush() {
	if w.err == nil {
		_, err := w.w.Write(w.buf)
		w.err = err
	}
	if len(w.buf) < small && cap(w.buf) > small { // idle again
		w.buf = nil
	}
	w.buf = w.buf[:0]
}
