package wire

import (
	"bytes"
	"testing"
	"time"

	"github.com/millrace/millrace/events/process"
)

// BenchmarkEncode and BenchmarkDecode measure the frames of a busy process: a chunk of output,
// its acknowledgement, and another event.
func BenchmarkEncode(b *testing.B) {
	event := process.Event{Time: time.Unix(1_700_000_000, 0), Body: process.Started{PID: 4711}}
	chunk, mark, dst := output(), Mark{token, 1 << 20}, make([]byte, 0, 1<<10)
	for _, bm := range []struct {
		name   string
		append func([]byte) []byte
	}{
		{"output", func(dst []byte) []byte { return AppendOutputHead(dst, chunk) }},
		{"ack", func(dst []byte) []byte { return AppendMark(dst, TypeAck, mark) }},
		{"event", func(dst []byte) []byte {
			return AppendEvent(dst, token, 2, func(dst []byte) []byte { return process.AppendEvent(dst, &event) })
		}},
	} {
		b.Run(bm.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				dst = bm.append(dst[:0])
			}
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	event := process.Event{Time: time.Unix(1_700_000_000, 0), Body: process.Started{PID: 4711}}
	chunk := output()
	chunk.Data = make([]byte, MaxData)
	for _, bm := range []struct {
		name  string
		frame []byte
		parse func([]byte) error
	}{
		{"output", append(AppendOutputHead(nil, chunk), chunk.Data...), func(b []byte) error { _, err := ParseOutput(b); return err }},
		{"ack", AppendMark(nil, TypeAck, Mark{token, 1 << 20}), func(b []byte) error { _, err := ParseMark(b); return err }},
		{"event", AppendEvent(nil, token, 2, func(dst []byte) []byte { return process.AppendEvent(dst, &event) }),
			func(b []byte) error { _, err := ParseEvent(b); return err }},
	} {
		b.Run(bm.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := bm.parse(bm.frame[headLen:]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkReader measures a stream of small chunks of output, from bytes to messages.
func BenchmarkReader(b *testing.B) {
	const chunks = 1000
	chunk := output()
	chunk.Data = bytes.Repeat([]byte("x"), 100)
	var stream []byte
	for range chunks {
		stream = append(AppendOutputHead(stream, chunk), chunk.Data...)
	}
	mem := make([]byte, MaxData)
	b.ReportAllocs()
	for b.Loop() {
		r := NewReader(bytes.NewReader(stream))
		r.Alloc = func(int) []byte { return mem }
		for range chunks {
			_, payload, err := r.Next()
			if err != nil {
				b.Fatal(err)
			}
			if _, err := ParseOutput(payload); err != nil {
				b.Fatal(err)
			}
		}
	}
}
