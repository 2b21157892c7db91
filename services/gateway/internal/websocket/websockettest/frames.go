// Package websockettest decodes and makes WebSocket frames for tests of surfaces, independently
// of package websocket.
package websockettest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Opcodes of frames.
const (
	Continuation = 0
	Text         = 1
	Binary       = 2
	Close        = 8
	Ping         = 9
	Pong         = 10
)

// Frame is a frame that a server sent.
type Frame struct {
	Op      byte
	Payload []byte
}

// Code returns the code of a close frame; 1005 if it has none.
func (f Frame) Code() int {
	if len(f.Payload) < 2 {
		return 1005
	}
	return int(binary.BigEndian.Uint16(f.Payload))
}

// Reason returns the text of a close frame.
func (f Frame) Reason() string { return string(f.Payload[min(2, len(f.Payload)):]) }

// Read reads one frame. It returns io.EOF at the end, and an error for a frame that a server
// must not send: all are final, not masked, and have the shortest encoding of their length.
func Read(r io.Reader) (Frame, error) {
	var head [2]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return Frame{}, err
	}
	f := Frame{Op: head[0] & 15}
	if head[0]&0xf0 != 0x80 || head[1]&0x80 != 0 {
		return f, fmt.Errorf("head % x: must be final, without extension and mask", head)
	}
	n, err := length(r, uint64(head[1]))
	if err != nil {
		return f, err
	}
	if f.Op >= Close && n > 125 {
		return f, fmt.Errorf("control frame of %d bytes", n)
	}
	f.Payload = make([]byte, n)
	_, err = io.ReadFull(r, f.Payload)
	return f, unexpected(err)
}

func length(r io.Reader, n uint64) (uint64, error) {
	var size int
	var least uint64
	switch n {
	case 126:
		size, least = 2, 126
	case 127:
		size, least = 8, 1<<16
	default:
		return n, nil
	}
	var b [8]byte
	if _, err := io.ReadFull(r, b[8-size:]); err != nil {
		return 0, unexpected(err)
	}
	n = binary.BigEndian.Uint64(b[:])
	if n < least || n > 1<<30 {
		return n, fmt.Errorf("length %d in %d bytes", n, size)
	}
	return n, nil
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// ReadAll reads frames to the end.
func ReadAll(r io.Reader) ([]Frame, error) {
	var all []Frame
	for {
		f, err := Read(r)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		all = append(all, f)
	}
}

// mask is the mask of every frame that AppendClient makes.
var mask = [4]byte{0x37, 0xfa, 0x21, 0x3d}

// AppendClient appends a masked frame of a client. The first byte contains the opcode and, in
// its upper half, the bit for a final frame (0x80) and those of extensions.
func AppendClient(dst []byte, first byte, payload []byte) []byte {
	dst = append(dst, first)
	switch n := len(payload); {
	case n < 126:
		dst = append(dst, 0x80|byte(n))
	case n < 1<<16:
		dst = binary.BigEndian.AppendUint16(append(dst, 0x80|126), uint16(n))
	default:
		dst = binary.BigEndian.AppendUint64(append(dst, 0x80|127), uint64(n))
	}
	dst = append(dst, mask[:]...)
	for i, b := range payload {
		dst = append(dst, b^mask[i%4])
	}
	return dst
}

// Final makes the first byte of a final frame.
const Final = 0x80
