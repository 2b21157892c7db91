package mux

import (
	"encoding/binary"
	"errors"

	"github.com/millrace/millrace/events/kind"
)

// ErrProtocol is the error of an end that violates the protocol. Nothing it sends can be
// trusted any more.
var ErrProtocol = errors.New("the stream protocol was violated")

// The types of frames. Types below FirstType belong to the owner of the channel.
const (
	FirstType = 128

	typeOpen   = 128
	typeWindow = 129
	typeData   = 130
	typeClose  = 131
	typeReset  = 132
)

// Limits of the protocol, in bytes.
const (
	MaxFrame  = 128 << 10 // payload of a frame
	maxTarget = 1 << 10   // target of an Open
	maxText   = 1 << 10   // reason of a Reset
	maxCredit = 1 << 30   // granted and unused

	headLen  = 8
	maxChunk = 32 << 10 // data in one frame that this package sends
)

func appendHead(dst []byte, t byte, n int, id uint32) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(4+n))
	dst = append(dst, t, 0, 0, 0)
	return binary.LittleEndian.AppendUint32(dst, id)
}

func appendOpen(dst []byte, id, window uint32, target string) []byte {
	dst = appendHead(dst, typeOpen, 4+len(target), id)
	dst = binary.LittleEndian.AppendUint32(dst, window)
	return append(dst, target...)
}

func appendWindow(dst []byte, id, n uint32) []byte {
	return binary.LittleEndian.AppendUint32(appendHead(dst, typeWindow, 4, id), n)
}

func appendData(dst []byte, id uint32, data []byte) []byte {
	return append(appendHead(dst, typeData, len(data), id), data...)
}

func appendClose(dst []byte, id uint32) []byte { return appendHead(dst, typeClose, 0, id) }

func appendReset(dst []byte, id uint32, err error) []byte {
	text := kind.Message(err)
	text = text[:min(len(text), maxText)]
	dst = appendHead(dst, typeReset, 1+len(text), id)
	return append(append(dst, byte(kind.Of(err))), text...)
}

// Split removes the first frame from b, for callers that move several frames at a time. ok
// is false at the end of b, or if the rest is not a frame.
func Split(b []byte) (t uint8, payload, rest []byte, ok bool) {
	if len(b) < headLen {
		return 0, nil, nil, false
	}
	n := binary.LittleEndian.Uint32(b)
	if n > MaxFrame || uint64(n) > uint64(len(b)-headLen) || b[5]|b[6]|b[7] != 0 {
		return 0, nil, nil, false
	}
	return b[4], b[headLen : headLen+n], b[headLen+n:], true
}
