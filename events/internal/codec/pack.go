package codec

import (
	"github.com/klauspost/compress/s2"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/millrace/millrace/events/field"
	"github.com/millrace/millrace/events/process"
)

const (
	fieldFrames = 7 // of a Batch; schema/event/v1
	fieldPacked = 8

	packFrom  = 1 << 10 // minimum bytes of frames worth compressing
	maxFrames = 8 << 20 // maximum bytes of frames in a compressed message
)

// PackBatch compresses the frames of plain, whose first head bytes are the head, into one
// S2 block, if that makes them smaller by an eighth or more. Either way it returns dst's
// memory, or a larger buffer if dst was too small.
func PackBatch(dst, plain []byte, head int) (packed []byte, ok bool) {
	frames := plain[head:]
	if len(frames) < packFrom {
		return dst[:0], false
	}
	// The block is moved into place once its length is known.
	front := head + protowire.SizeTag(fieldPacked) + protowire.SizeVarint(uint64(len(frames)))
	if need := front + s2.MaxEncodedLen(len(frames)); cap(dst) < need {
		dst = make([]byte, need)
	}
	block := s2.Encode(dst[front:cap(dst)], frames)
	if len(block) > len(frames)-len(frames)/8 {
		return dst[:0], false
	}
	out := dst[:0]
	out = append(out, plain[:head]...)
	return field.PutBytes(out, fieldPacked, block), true
}

// UnpackBatch reverses PackBatch. It returns b itself if b is not compressed. Its error is
// field.ErrMalformed.
func UnpackBatch(b []byte) ([]byte, error) {
	for rest := b; len(rest) > 0; {
		num, typ, n := protowire.ConsumeTag(rest)
		if n < 0 {
			return nil, field.ErrMalformed
		}
		if num == fieldPacked && typ == protowire.BytesType {
			return unpack(b[:len(b)-len(rest)], rest[n:])
		}
		if num == fieldFrames {
			break
		}
		m := protowire.ConsumeFieldValue(num, typ, rest[n:])
		if m < 0 {
			return nil, field.ErrMalformed
		}
		rest = rest[n+m:]
	}
	return b, nil
}

// ParseBatch parses a message of a record, compressed or not.
func ParseBatch(data []byte) (process.Batch, error) {
	plain, err := UnpackBatch(data)
	if err != nil {
		return process.Batch{}, err
	}
	return process.ParseBatch(plain)
}

// unpack appends the decompressed frames to the head.
func unpack(head, value []byte) ([]byte, error) {
	block, n := protowire.ConsumeBytes(value)
	if n < 0 {
		return nil, field.ErrMalformed
	}
	size, err := s2.DecodedLen(block)
	if err != nil || size > maxFrames {
		return nil, field.ErrMalformed
	}
	out := append(make([]byte, 0, len(head)+size), head...)
	frames, err := s2.Decode(out[len(head):cap(out)], block)
	if err != nil {
		return nil, field.ErrMalformed
	}
	return out[:len(head)+len(frames)], nil
}
