package wire

import (
	"encoding/binary"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/millrace/millrace/events/field"
)

// versionLen is the length of what putVersion appends.
const versionLen = 8

// putVersion appends the protocol and its version, which precede the fields of Attach and
// Hello.
func putVersion(dst []byte) []byte {
	return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(dst, magic), Version)
}

// cutVersion returns what follows the output of putVersion. It returns ErrMalformed for
// another protocol and ErrVersion for another version, whatever follows.
func cutVersion(b []byte) ([]byte, error) {
	if len(b) < versionLen || binary.LittleEndian.Uint32(b) != magic {
		return nil, ErrMalformed
	}
	if v := binary.LittleEndian.Uint32(b[4:]); v != Version {
		return nil, fmt.Errorf("%w: %d, want %d", ErrVersion, v, Version)
	}
	return b[versionLen:], nil
}

const (
	tagToken = fieldToken<<3 | byte(protowire.BytesType)
	tagSeq   = fieldSeq<<3 | byte(protowire.Fixed64Type)
)

// putToken appends a process's token at its fixed length, regardless of the length of token.
func putToken(dst []byte, token string) []byte {
	field := [2 + TokenLen]byte{tagToken, TokenLen}
	copy(field[2:], token)
	return append(dst, field[:]...)
}

// putSeq appends the seq of an event. Its size is fixed, because it is written and read with
// each chunk of output and each Ack.
func putSeq(dst []byte, seq uint64) []byte {
	return binary.LittleEndian.AppendUint64(append(dst, tagSeq), seq)
}

// text returns a field of at most MaxText bytes.
func text(v []byte) (string, error) {
	if len(v) > MaxText {
		return "", ErrMalformed
	}
	return string(v), nil
}

// tokenField returns a field that has a process's token.
func tokenField(v []byte) (string, error) {
	if len(v) != TokenLen {
		return "", ErrMalformed
	}
	return string(v), nil
}

// payload returns a field of at most most bytes, which shares v's memory.
func payload(v []byte, most int) ([]byte, error) {
	if len(v) > most {
		return nil, ErrMalformed
	}
	return v[:len(v):len(v)], nil
}

// number returns a field as a T that can hold it.
func number[T uint8 | uint16 | uint32](u uint64) (T, error) {
	if u > uint64(^T(0)) {
		return 0, ErrMalformed
	}
	return T(u), nil
}

// parsed returns the error of a message that has a token.
func parsed(token string, err error) error {
	if err != nil || token == "" {
		return ErrMalformed
	}
	return nil
}

// appendNumber appends a message that consists of one number.
func appendNumber(dst []byte, u uint64) []byte { return field.AppendUint(dst, 1, u) }

// parseNumber parses what appendNumber wrote.
func parseNumber(b []byte) (uint64, error) {
	var n uint64
	err := field.Each(b, func(num protowire.Number, u uint64, _ []byte) error {
		if num == 1 {
			n = u
		}
		return nil
	})
	if err != nil {
		return 0, ErrMalformed
	}
	return n, nil
}
