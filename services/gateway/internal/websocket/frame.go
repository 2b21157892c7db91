package websocket

import (
	"encoding/binary"
	"slices"
	"unicode/utf8"
)

// Type is the type of a message.
type Type byte

// Types of messages.
const (
	Text   Type = 1 // UTF-8
	Binary Type = 2
)

// Code is the reason of a close frame (RFC 6455, section 7.4).
type Code uint16

// Codes that the gateway sends. Protocols may send others, from 3000 on.
const (
	Normal      Code = 1000
	GoingAway   Code = 1001
	Protocol    Code = 1002
	Unsupported Code = 1003
	BadText     Code = 1007
	Policy      Code = 1008
	TooLarge    Code = 1009
	Fault       Code = 1011
	TryLater    Code = 1013
)

// Opcodes and bits of a frame (RFC 6455, section 5.2).
const (
	opClose = 8
	opPing  = 9
	opPong  = 10
	opMask  = 0x0f

	final  = 0x80
	masked = 0x80
	len16  = 126 // the length is in the next 2 bytes
	len64  = 127 // the length is in the next 8 bytes

	maxControl = 125            // payload of a control frame
	maxReason  = maxControl - 2 // text of a close frame
	smallHead  = 2              // bytes of the head of a frame with up to maxControl bytes
	mediumHead = smallHead + 2  // bytes of the head of a frame with up to 64 KiB
	largeHead  = smallHead + 8  // bytes of the head of a larger frame
	maskLength = 4              // bytes of a client's mask
	maxHead    = largeHead + maskLength
)

// BeginMessage reserves space for the head of a message at the end of dst. The caller appends
// the payload and then calls [EndMessage] with the length that dst had before.
func BeginMessage(dst []byte) []byte { return append(dst, make([]byte, mediumHead)...) }

// EndMessage completes the message that was begun at dst[at:].
func EndMessage(dst []byte, at int, t Type) []byte {
	n := len(dst) - at - mediumHead
	switch {
	case n <= maxControl:
		dst = slices.Delete(dst, at, at+mediumHead-smallHead)
		dst[at+1] = byte(n)
	case n <= 0xffff:
		dst[at+1] = len16
		binary.BigEndian.PutUint16(dst[at+smallHead:], uint16(n))
	default:
		dst = slices.Insert(dst, at, make([]byte, largeHead-mediumHead)...)
		dst[at+1] = len64
		binary.BigEndian.PutUint64(dst[at+smallHead:], uint64(n))
	}
	dst[at] = final | byte(t)
	return dst
}

// AppendMessage appends a message.
func AppendMessage(dst []byte, t Type, payload []byte) []byte {
	dst = append(dst, final|byte(t))
	switch n := len(payload); {
	case n <= maxControl:
		dst = append(dst, byte(n))
	case n <= 0xffff:
		dst = binary.BigEndian.AppendUint16(append(dst, len16), uint16(n))
	default:
		dst = binary.BigEndian.AppendUint64(append(dst, len64), uint64(n))
	}
	return append(dst, payload...)
}

// MessageSize returns an upper bound of the size of a message with a payload of n bytes.
func MessageSize(n int) int { return largeHead + n }

// appendControl appends a control frame. Its payload has at most maxControl bytes.
func appendControl(dst []byte, opcode byte, payload []byte) []byte {
	return append(append(dst, final|opcode, byte(len(payload))), payload...)
}

// appendClose appends a close frame. Without a code it is empty. A reason that is too long or
// not UTF-8 is cut.
func appendClose(dst []byte, code Code, reason string) []byte {
	if code == 0 {
		return appendControl(dst, opClose, nil)
	}
	payload := binary.BigEndian.AppendUint16(make([]byte, 0, maxControl), uint16(code))
	for i, r := range reason {
		n := utf8.RuneLen(r)
		if i+n > maxReason || r == utf8.RuneError {
			break
		}
		payload = utf8.AppendRune(payload, r)
	}
	return appendControl(dst, opClose, payload)
}
