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
	return protowire.AppendVarint(protowire.AppendTag(dst, num, protowire.VarintType), v)
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
	return protowire.AppendBytes(protowire.AppendTag(dst, num, protowire.BytesType), v)
}

// PutString appends a string, even if empty.
func PutString(dst []byte, num protowire.Number, v string) []byte {
	return protowire.AppendString(protowire.AppendTag(dst, num, protowire.BytesType), v)
}

// PutMessage appends the message that f appends, even if empty. It is meant for small
// messages: if the length needs more than one byte, the content is moved.
func PutMessage(dst []byte, num protowire.Number, f func([]byte) []byte) []byte {
	dst = protowire.AppendTag(dst, num, protowire.BytesType)
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

// Each calls f for each field of b: u is set for varints, v for length-delimited fields; v
// shares b's memory. It skips other wire types. It returns ErrMalformed or f's error.
func Each(b []byte, f func(num protowire.Number, u uint64, v []byte) error) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return ErrMalformed
		}
		b = b[n:]
		var u uint64
		var v []byte
		switch typ {
		case protowire.VarintType:
			u, n = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			v, n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(num, typ, b)
		}
		if n < 0 {
			return ErrMalformed
		}
		b = b[n:]
		if typ == protowire.VarintType || typ == protowire.BytesType {
			if err := f(num, u, v); err != nil {
				return err
			}
		}
	}
	return nil
}
