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
