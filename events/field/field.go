// Package field encodes and decodes the fields of protobuf messages by hand, for messages
// on the hot path, and for programs whose size the generated types would double. The Append
// functions omit zero values, as proto3 does.
package field

import (
	"errors"

	"google.golang.org/protobuf/encoding/protowire"
)

// ErrMalformed reports bytes that are not valid protobuf fields.
var ErrMalformed = errors.New("malformed protobuf fields")

// AppendUint appends a number.
func AppendUint(dst []byte, num protowire.Number, v uint64) []byte {
	if v == 0 {
		return dst
	}
	return protowire.AppendVarint(appendTag(dst, num, protowire.VarintType), v)
}

// appendTag is protowire.AppendTag, faster for a tag of one byte.
func appendTag(dst []byte, num protowire.Number, typ protowire.Type) []byte {
	if num < 16 {
		return append(dst, byte(num)<<3|byte(typ))
	}
	return protowire.AppendTag(dst, num, typ)
}

// AppendBool appends a bool.
func AppendBool(dst []byte, num protowire.Number, v bool) []byte {
	return AppendUint(dst, num, protowire.EncodeBool(v))
}

// AppendString appends a string, which must be UTF-8.
func AppendString(dst []byte, num protowire.Number, v string) []byte {
	if v == "" {
		return dst
	}
	return PutString(dst, num, v)
}

// AppendBytes appends bytes.
func AppendBytes(dst []byte, num protowire.Number, v []byte) []byte {
	if len(v) == 0 {
		return dst
	}
	return PutBytes(dst, num, v)
}

// PutBytes appends bytes, even if empty.
func PutBytes(dst []byte, num protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(appendTag(dst, num, protowire.BytesType), v)
}

// PutString appends a string, even if empty.
func PutString(dst []byte, num protowire.Number, v string) []byte {
	return protowire.AppendString(appendTag(dst, num, protowire.BytesType), v)
}

// PutMessage appends the message that f appends, even if empty. It is meant for small
// messages: if the length needs more than one byte, the content is moved.
func PutMessage(dst []byte, num protowire.Number, f func([]byte) []byte) []byte {
	dst = appendTag(dst, num, protowire.BytesType)
	start := len(dst)
	dst = f(append(dst, 0))
	n := len(dst) - start - 1
	if n < 0x80 {
		dst[start] = byte(n)
		return dst
	}
	extra := protowire.SizeVarint(uint64(n)) - 1
	dst = append(dst, make([]byte, extra)...)
	copy(dst[start+1+extra:], dst[start+1:start+1+n])
	protowire.AppendVarint(dst[:start], uint64(n))
	return dst
}

// Each calls f for each field of b: u is set for numbers, v for length-delimited fields; v
// shares b's memory. It skips groups and fixed32. It returns ErrMalformed or f's error.
func Each(b []byte, f func(num protowire.Number, u uint64, v []byte) error) error {
	for len(b) > 0 {
		num, u, v, n := next(b)
		if n < 0 {
			return ErrMalformed
		}
		b = b[n:]
		if num == 0 {
			continue
		}
		if err := f(num, u, v); err != nil {
			return err
		}
	}
	return nil
}

// next returns the first field of b, as Each does, and its size. A skipped field has the number
// 0. A negative size reports malformed bytes.
func next(b []byte) (num protowire.Number, u uint64, v []byte, n int) {
	if len(b) == 0 {
		return 0, 0, nil, -1
	}
	tag, at := uint64(b[0]), 1
	if tag >= 0x80 {
		if tag, at = protowire.ConsumeVarint(b); at < 0 {
			return 0, 0, nil, -1
		}
	}
	if tag>>3 < uint64(protowire.MinValidNumber) || tag>>3 > uint64(protowire.MaxValidNumber) {
		return 0, 0, nil, -1
	}
	num = protowire.Number(tag >> 3)
	switch typ := protowire.Type(tag & 7); typ {
	case protowire.VarintType:
		u, n = consumeVarint(b[at:])
	case protowire.Fixed64Type:
		u, n = protowire.ConsumeFixed64(b[at:])
	case protowire.BytesType:
		var size uint64
		size, n = consumeVarint(b[at:])
		if n < 0 || size > uint64(len(b)-at-n) {
			return 0, 0, nil, -1
		}
		v = b[at+n:][:size]
		n += int(size)
	default:
		num, n = 0, protowire.ConsumeFieldValue(num, typ, b[at:])
	}
	if n < 0 {
		return 0, 0, nil, -1
	}
	return num, u, v, at + n
}

// consumeVarint is protowire.ConsumeVarint, faster for a number of one byte.
func consumeVarint(b []byte) (uint64, int) {
	if len(b) > 0 && b[0] < 0x80 {
		return uint64(b[0]), 1
	}
	return protowire.ConsumeVarint(b)
}
