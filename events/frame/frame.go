package frame

import (
	"bytes"
	"slices"
)

// Kind is what a frame carries. The numbers are stored and must not change.
type Kind byte

const (
	Text    Kind = 1 // a text message of a client or for a client
	Binary  Kind = 2 // a binary message for a client
	Control Kind = 3 // a message between gateway and runtime: see [Message]
)

// Limits of payloads, in bytes.
const (
	MaxFromClient  = 1 << 20  // what a client sends
	MaxFromRuntime = 16 << 20 // what a runtime sends
)

// block is the number of bytes that a block of COBS holds at most.
const block = 254

// EncodedLen returns the largest size of a frame whose payload has n bytes, with its end.
func EncodedLen(n int) int { return 1 + n + (1+n+block-1)/block + 1 }

// Append appends a frame to dst.
func Append(dst []byte, k Kind, payload []byte) []byte {
	dst = slices.Grow(dst, EncodedLen(len(payload)))
	head := len(dst) // position of the head of the open block, which holds the block's length
	dst = append(dst, 0, byte(k))
	for {
		n := bytes.IndexByte(payload, 0)
		run := payload
		if n >= 0 {
			run = payload[:n]
		}
		for {
			// A block opens when it has something to hold, so that the last one is never empty
			// after a full one.
			room := block - (len(dst) - head - 1)
			if len(run) <= room {
				dst = append(dst, run...)
				break
			}
			dst = append(dst, run[:room]...)
			dst[head], run = 0xff, run[room:]
			head = len(dst)
			dst = append(dst, 0)
		}
		if n < 0 {
			dst[head] = byte(len(dst) - head)
			return append(dst, 0)
		}
		payload = payload[n+1:]
		if len(dst)-head-1 == block { // a full block stands for no zero: an empty one does
			dst[head], head = 0xff, len(dst)
			dst = append(dst, 0)
		}
		dst[head] = byte(len(dst) - head)
		head = len(dst)
		dst = append(dst, 0)
	}
}

// unstuff appends to dst what src, which contains no zero byte, was encoded from, and reports
// whether it is well formed. dst may be the beginning of src.
func unstuff(dst, src []byte) ([]byte, bool) {
	for len(src) > 0 {
		n := int(src[0])
		if n > len(src) {
			return dst, false
		}
		dst = append(dst, src[1:n]...)
		src = src[n:]
		if n <= block && len(src) > 0 {
			dst = append(dst, 0)
		}
	}
	return dst, true
}
