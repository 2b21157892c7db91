package wire

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// ErrMalformed reports a payload that cannot be parsed.
var ErrMalformed = errors.New("malformed frame")

// ErrVersion reports that the other side uses another version of the protocol.
var ErrVersion = errors.New("another protocol version")

// AppendFrame appends a frame with the payload that f appends.
func AppendFrame(dst []byte, t Type, f func([]byte) []byte) []byte {
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0, byte(t), 0, 0, 0)
	if f != nil {
		dst = f(dst)
	}
	binary.LittleEndian.PutUint32(dst[start:], uint32(len(dst)-start-headLen))
	return dst
}

// Reader reads frames. It belongs to one goroutine.
type Reader struct {
	br *bufio.Reader
	// Alloc returns memory for a payload of n bytes; nil: it is allocated.
	Alloc func(n int) []byte
}

// readBuffer is small, because every idle sandbox has one; a large payload is read directly
// into its own memory.
const readBuffer = 8 << 10

// NewReader returns a reader of r's frames.
func NewReader(r io.Reader) *Reader { return &Reader{br: bufio.NewReaderSize(r, readBuffer)} }

// Next returns the next frame. The caller owns the payload. io.EOF is the end of the stream
// between two frames.
func (r *Reader) Next() (Type, []byte, error) {
	head, err := r.br.Peek(headLen)
	if err != nil {
		if len(head) > 0 && errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, err
	}
	t, n, err := parseHead(head)
	if err != nil {
		return 0, nil, err
	}
	if _, err := r.br.Discard(headLen); err != nil {
		return 0, nil, err
	}
	var payload []byte
	if r.Alloc != nil {
		payload = r.Alloc(int(n))[:n]
	} else {
		payload = make([]byte, n)
	}
	if _, err := io.ReadFull(r.br, payload); err != nil {
		return 0, nil, io.ErrUnexpectedEOF
	}
	return t, payload, nil
}

func parseHead(head []byte) (Type, uint32, error) {
	n, t := binary.LittleEndian.Uint32(head), Type(head[4])
	most := uint32(MaxFrame)
	if t == TypeHello {
		most = MaxHello
	}
	if n > most {
		return 0, 0, fmt.Errorf("frame of %d bytes: %w", n, ErrMalformed)
	}
	if head[5]|head[6]|head[7] != 0 {
		return 0, 0, fmt.Errorf("frame head: %w", ErrMalformed)
	}
	return t, n, nil
}

// Cut parses the first frame of b; the payload shares b's memory.
func Cut(b []byte) (t Type, payload, rest []byte, err error) {
	if len(b) < headLen {
		return 0, nil, nil, ErrMalformed
	}
	t, n, err := parseHead(b)
	b = b[headLen:]
	if err != nil || uint64(n) > uint64(len(b)) {
		return 0, nil, nil, ErrMalformed
	}
	return t, b[:n:n], b[n:], nil
}

// dec reads the fields of a payload in order. After the first missing one all are zero and
// err is set.
type dec struct {
	b   []byte
	err error
}

func (d *dec) fail() { d.b, d.err = nil, ErrMalformed }

// version reads the protocol and its version. It returns ErrMalformed for another protocol
// and ErrVersion for another version.
func (d *dec) version() error {
	if d.u32() != magic {
		return ErrMalformed
	}
	if v := d.u32(); d.err == nil && v != Version {
		return fmt.Errorf("%w: %d, want %d", ErrVersion, v, Version)
	}
	return d.err
}

func (d *dec) u64() uint64 {
	if len(d.b) < 8 {
		d.fail()
		return 0
	}
	v := binary.LittleEndian.Uint64(d.b)
	d.b = d.b[8:]
	return v
}

func (d *dec) u32() uint32 {
	if len(d.b) < 4 {
		d.fail()
		return 0
	}
	v := binary.LittleEndian.Uint32(d.b)
	d.b = d.b[4:]
	return v
}

func (d *dec) u8() uint8 {
	if len(d.b) < 1 {
		d.fail()
		return 0
	}
	v := d.b[0]
	d.b = d.b[1:]
	return v
}

// bytes reads a length and that many bytes, which share the payload's memory.
func (d *dec) bytes() []byte {
	n := d.u32()
	if uint64(n) > uint64(len(d.b)) {
		d.fail()
		return nil
	}
	v := d.b[:n:n]
	d.b = d.b[n:]
	return v
}

func (d *dec) str() string { return string(d.bytes()) }

// token reads a process's token.
func (d *dec) token() string {
	if len(d.b) < TokenLen {
		d.fail()
		return ""
	}
	v := string(d.b[:TokenLen])
	d.b = d.b[TokenLen:]
	return v
}

// end returns the error of the whole payload, which must have been read completely.
func (d *dec) end() error {
	if d.err == nil && len(d.b) != 0 {
		return ErrMalformed
	}
	return d.err
}

// putVersion writes what dec.version reads.
func putVersion(dst []byte) []byte { return putU32(putU32(dst, magic), Version) }

func putU64(dst []byte, v uint64) []byte { return binary.LittleEndian.AppendUint64(dst, v) }
func putU32(dst []byte, v uint32) []byte { return binary.LittleEndian.AppendUint32(dst, v) }

func putBytes[T string | []byte](dst []byte, v T) []byte {
	return append(putU32(dst, uint32(len(v))), v...)
}

// putToken writes a token at its fixed length, regardless of the length of t.
func putToken(dst []byte, t string) []byte {
	var fixed [TokenLen]byte
	copy(fixed[:], t)
	return append(dst, fixed[:]...)
}

func putBool(dst []byte, v bool) []byte {
	if v {
		return append(dst, 1)
	}
	return append(dst, 0)
}
