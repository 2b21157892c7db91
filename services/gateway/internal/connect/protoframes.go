package connect

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/millrace/millrace/events/field"
	"github.com/millrace/millrace/events/process"
)

// proto appends an event with a small body: the oneof field num of ProcessEvent,
// inside field 1 of the response.
func (w *wire) proto(dst []byte, num protowire.Number, body []byte, n *meta) []byte {
	dst, at := openEnvelope(dst)
	inner := protowire.SizeTag(num) + protowire.SizeBytes(len(body))
	dst = protowire.AppendTag(dst, 1, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(inner))
	dst = protowire.AppendTag(dst, num, protowire.BytesType)
	dst = protowire.AppendBytes(dst, body)
	return w.close(w.protoMeta(dst, n), at)
}

// protoData appends a data event: response{1: event{2: data{stream: bytes}}}.
// The lengths come before the bytes, so that the bytes are copied once.
func (w *wire) protoData(dst []byte, s process.Stream, a, b []byte, n *meta) []byte {
	size := len(a) + len(b)
	output := 1 + protowire.SizeBytes(size)
	data := 1 + protowire.SizeBytes(output)
	dst, at := openEnvelope(dst)
	dst = append(dst, 1<<3|byte(protowire.BytesType))
	dst = protowire.AppendVarint(dst, uint64(data))
	dst = append(dst, 2<<3|byte(protowire.BytesType))
	dst = protowire.AppendVarint(dst, uint64(output))
	dst = append(dst, byte(s)<<3|byte(protowire.BytesType))
	dst = protowire.AppendVarint(dst, uint64(size))
	dst = append(dst, a...)
	dst = append(dst, b...)
	return w.close(w.protoMeta(dst, n), at)
}

// protoMeta appends Millrace's own fields of a response.
func (w *wire) protoMeta(dst []byte, n *meta) []byte {
	if n == nil || w.bare {
		return dst
	}
	dst = protowire.AppendTag(dst, fieldSeq, protowire.VarintType)
	dst = protowire.AppendVarint(dst, n.seq)
	if n.cursor.partial {
		var b [64]byte
		dst = field.AppendBytes(dst, fieldCursor, n.cursor.appendCursor(b[:0]))
	}
	return field.AppendString(dst, fieldProcess, string(n.process))
}
