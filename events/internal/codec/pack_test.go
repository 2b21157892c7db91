package codec_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/klauspost/compress/s2"
	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/internal/codec"
	"github.com/millrace/millrace/events/process"
	pb "github.com/millrace/millrace/schema/event/v1"
)

// long returns a batch that compresses well, and the length of its head.
func long() (plain []byte, head int) {
	b := process.Batch{Sandbox: "i1", Process: "p1", Host: "h", Epoch: 3, FirstSeq: 1, Events: eventstest.Script(200)}
	return process.AppendBatch(nil, &b), len(process.AppendBatchHead(nil, &b))
}

func TestACompressedBatchIsSmallerAndEqual(t *testing.T) {
	plain, head := long()
	packed, ok := codec.PackBatch(nil, plain, head)
	if !ok || len(packed) > len(plain)/2 {
		t.Fatalf("%v: %d bytes of %d", ok, len(packed), len(plain))
	}
	if back, err := codec.UnpackBatch(packed); err != nil || !bytes.Equal(back, plain) {
		t.Errorf("it does not survive a round trip: %v", err)
	}
	want, err := process.ParseBatch(plain)
	if err != nil {
		t.Fatal(err)
	}
	got, err := codec.ParseBatch(packed)
	if err != nil || got.Frames != want.Frames || len(got.Events) != len(want.Events) || got.Size != len(plain) || got.Host != want.Host {
		t.Errorf("it is parsed differently: %v", err)
	}
	var gen pb.Batch
	if err := proto.Unmarshal(packed, &gen); err != nil || len(gen.Packed) == 0 || len(gen.Frames) != 0 {
		t.Errorf("%v: it does not match the schema", err)
	}
	memory := packed[:0]
	if again, _ := codec.PackBatch(memory, plain, head); &again[0] != &memory[:1][0] {
		t.Error("the buffer is not reused")
	}
}

func TestAnIncompressibleBatchIsNotCompressed(t *testing.T) {
	for name, data := range map[string][]byte{"short": []byte("aaaaaaaaaaaaaaaaaaaaaaaa"), "noise": eventstest.Noise(1, 64<<10)} {
		b := process.Batch{Sandbox: "i1", Events: []process.Event{{Body: process.Wrote{Data: data}}}}
		plain := process.AppendBatch(nil, &b)
		if _, ok := codec.PackBatch(nil, plain, len(process.AppendBatchHead(nil, &b))); ok {
			t.Errorf("%s: compressed", name)
		}
		if back, err := codec.UnpackBatch(plain); err != nil || &back[0] != &plain[0] {
			t.Errorf("%s: it was copied, or %v", name, err)
		}
	}
}

func TestADecompressionBombIsRejected(t *testing.T) {
	block := s2.Encode(nil, make([]byte, 9<<20))
	bomb := process.AppendBatchHead(nil, &process.Batch{Sandbox: "i1"})
	bomb = append(append(bomb, 8<<3|2), byte(len(block)|0x80), byte(len(block)>>7|0x80), byte(len(block)>>14))
	if _, err := codec.ParseBatch(append(bomb, block...)); err == nil {
		t.Errorf("%d bytes were decompressed to 9 MiB", len(bomb)+len(block))
	}
	if _, err := codec.ParseBatch(append(bomb, block[:len(block)-1]...)); err == nil {
		t.Error("a truncated block was accepted")
	}
}

func FuzzParsePacked(f *testing.F) {
	plain, head := long()
	packed, _ := codec.PackBatch(nil, plain, head)
	f.Add(packed)
	f.Add(plain)
	f.Fuzz(func(t *testing.T, data []byte) {
		back, err := codec.UnpackBatch(data)
		if err != nil {
			return
		}
		got, err := codec.ParseBatch(data)
		want, wantErr := process.ParseBatch(back)
		if (err == nil) != (wantErr == nil) || got.Frames != want.Frames || len(got.Events) != len(want.Events) {
			t.Errorf("%v, %d frames; unpacked %v, %d", err, got.Frames, wantErr, want.Frames)
		}
	})
}

func BenchmarkPack256K(b *testing.B) {
	var buf []byte
	for len(buf) < 256<<10 {
		buf = fmt.Appendf(buf, "2026-01-02T03:04:%02d INFO request %x took %d us\n", rand.IntN(60), rand.Uint64(), rand.IntN(9999))
	}
	batch := process.Batch{Sandbox: "i1", Events: []process.Event{{Body: process.Wrote{Data: buf[:256<<10]}}}}
	plain, head := process.AppendBatch(nil, &batch), len(process.AppendBatchHead(nil, &batch))
	b.SetBytes(int64(len(plain)))
	var packed []byte
	for b.Loop() {
		packed, _ = codec.PackBatch(packed, plain, head)
	}
	b.ReportMetric(float64(len(plain))/float64(max(len(packed), 1)), "x")
}
