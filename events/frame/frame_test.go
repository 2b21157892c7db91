package frame_test

import (
	"bytes"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/millrace/millrace/events/frame"
	"github.com/millrace/millrace/events/kind"
)

func collect(d *frame.Decoder, chunk []byte) (got []frame.Frame, errs []error) {
	for f, err := range d.Feed(chunk) {
		if err != nil {
			errs = append(errs, err)
			continue
		}
		f.Payload = bytes.Clone(f.Payload)
		got = append(got, f)
	}
	return got, errs
}

// The bytes of a frame never change: records contain them.
func TestFramesOnTheWire(t *testing.T) {
	long := strings.Repeat("x", 253)
	tests := []struct {
		name    string
		kind    frame.Kind
		payload string
		want    string
	}{
		{"empty text", frame.Text, "", "\x02\x01\x00"},
		{"text", frame.Text, "hi", "\x04\x01hi\x00"},
		{"a zero byte", frame.Binary, "\x00", "\x02\x02\x01\x00"},
		{"zero bytes within", frame.Binary, "a\x00\x00b", "\x03\x02a\x01\x02b\x00"},
		{"control", frame.Control, "{}", "\x04\x03{}\x00"},
		{"a full block", frame.Text, long, "\xff\x01" + long + "\x00"},
		{"a full block and a zero byte", frame.Text, long + "\x00", "\xff\x01" + long + "\x01\x01\x00"},
		{"one more than a block", frame.Text, long + "y", "\xff\x01" + long + "\x02y\x00"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := frame.Append([]byte("before"), tt.kind, []byte(tt.payload))
			if string(got) != "before"+tt.want {
				t.Fatalf("got %q, want %q", got, "before"+tt.want)
			}
			if n := len(tt.want); n > frame.EncodedLen(len(tt.payload)) {
				t.Errorf("the frame has %d bytes, more than %d", n, frame.EncodedLen(len(tt.payload)))
			}
			frames, errs := collect(frame.NewDecoder(len(tt.payload)), []byte(tt.want))
			if len(errs) > 0 || len(frames) != 1 || frames[0].Kind != tt.kind || string(frames[0].Payload) != tt.payload {
				t.Errorf("decoded to %+v, errors %v", frames, errs)
			}
		})
	}
}

func TestControlFramesOnTheWire(t *testing.T) {
	var got []byte
	for _, m := range []frame.Message{
		{Ready: &frame.Ready{Port: 49983}},
		{Attach: &frame.Attach{ID: "a1", Token: "t", URL: "ws://x/?token=t", CUA: true}},
		{Attached: "a1"},
		{Detach: &frame.Detach{ID: "a1"}},
	} {
		got = frame.AppendMessage(got, m)
	}
	want, err := os.ReadFile("testdata/control.bin")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	frames, _ := collect(frame.NewDecoder(frame.MaxFromClient), want)
	if len(frames) != 4 {
		t.Fatalf("%d frames", len(frames))
	}
	if m, err := frame.ParseMessage(frames[1].Payload); err != nil || m.Attach == nil || m.Attach.Token != "t" || !m.Attach.CUA {
		t.Errorf("got %+v, %v", m, err)
	}
	if _, err := frame.ParseMessage([]byte("{")); !kind.Is(err, kind.Invalid) {
		t.Errorf("half a message: %v", err)
	}
}

// A reader that starts anywhere in a stream yields each frame after the one that it starts in.
func TestResyncFindsTheNextFrame(t *testing.T) {
	var stream []byte
	var ends []int64
	for _, s := range []string{"one", "t\x00wo", "", "three"} {
		stream = frame.Append(stream, frame.Text, []byte(s))
		ends = append(ends, int64(len(stream)))
	}
	for start := range stream {
		d := frame.NewDecoder(100)
		d.Resync()
		got, errs := collect(d, stream[start:])
		if len(errs) > 0 {
			t.Fatalf("from %d: %v", start, errs)
		}
		want := 0
		for _, end := range ends {
			if int64(start) < end {
				want++
			}
		}
		if want--; len(got) != want {
			t.Fatalf("from %d: %d frames, want %d", start, len(got), want)
		}
		for i, f := range got {
			if at := f.End + int64(start); at != ends[len(ends)-want+i] {
				t.Errorf("from %d: frame %d ends at %d", start, i, at)
			}
		}
	}
}

func TestDamageCostsOneFrame(t *testing.T) {
	good := frame.Append(nil, frame.Text, []byte("good"))
	tests := []struct {
		name string
		bad  []byte
		want kind.Kind
		errs int
	}{
		{"a block beyond the end", []byte("\x09\x01abc\x00"), kind.Invalid, 1},
		{"no kind", []byte("\x01\x00"), kind.Invalid, 1},
		{"an unknown kind", []byte("\x02\x09\x00"), kind.Invalid, 1},
		{"a payload beyond the limit", frame.Append(nil, frame.Text, make([]byte, 11)), kind.Exhausted, 1},
		{"an endless frame", append(bytes.Repeat([]byte("x"), 5000), 0), kind.Exhausted, 1},
		{"zero bytes between frames", []byte("\x00\x00\x00"), 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			stream := append(append(bytes.Clone(good), tt.bad...), good...)
			for _, step := range []int{1, 3, len(stream)} {
				d := frame.NewDecoder(10)
				var got []frame.Frame
				var errs []error
				for rest := stream; len(rest) > 0; {
					n := min(step, len(rest))
					f, e := collect(d, rest[:n])
					got, errs, rest = append(got, f...), append(errs, e...), rest[n:]
				}
				if len(got) != 2 || string(got[0].Payload) != "good" || string(got[1].Payload) != "good" {
					t.Errorf("chunks of %d: frames %+v", step, got)
				}
				if len(errs) != tt.errs || tt.errs > 0 && !kind.Is(errs[0], tt.want) {
					t.Errorf("chunks of %d: errors %v", step, errs)
				}
				if got[1].End != int64(len(stream)) {
					t.Errorf("chunks of %d: the last frame ends at %d, want %d", step, got[1].End, len(stream))
				}
			}
		})
	}
}

// Whatever arrives, in whatever chunks, the decoder neither fails nor depends on the chunks.
func FuzzDecode(f *testing.F) {
	f.Add([]byte("\x02\x01\x00\x09\x01abc\x00"), uint8(3))
	f.Add(frame.Append(nil, frame.Binary, bytes.Repeat([]byte{0, 1}, 300)), uint8(200))
	f.Fuzz(func(t *testing.T, stream []byte, step uint8) {
		whole, wholeErrs := collect(frame.NewDecoder(500), stream)
		d := frame.NewDecoder(500)
		var got []frame.Frame
		var errs []error
		for rest := stream; len(rest) > 0; {
			n := min(int(step)+1, len(rest))
			fs, es := collect(d, rest[:n])
			got, errs, rest = append(got, fs...), append(errs, es...), rest[n:]
		}
		if len(got) != len(whole) || len(errs) != len(wholeErrs) {
			t.Fatalf("%d frames and %d errors in chunks, %d and %d as a whole", len(got), len(errs), len(whole), len(wholeErrs))
		}
		for i, fr := range got {
			if !bytes.Equal(fr.Payload, whole[i].Payload) || fr.End != whole[i].End || len(fr.Payload) > 500 {
				t.Fatalf("frame %d differs", i)
			}
			again, errs := collect(frame.NewDecoder(500), frame.Append(nil, fr.Kind, fr.Payload))
			if len(errs) > 0 || len(again) != 1 || !bytes.Equal(again[0].Payload, fr.Payload) {
				t.Fatalf("frame %d does not survive: %v", i, errs)
			}
		}
	})
}

// What was appended is what is decoded, and nothing in between contains a zero byte.
func FuzzAppend(f *testing.F) {
	f.Add([]byte("a\x00b"))
	f.Add(bytes.Repeat([]byte("x"), 254*3))
	f.Fuzz(func(t *testing.T, payload []byte) {
		enc := frame.Append(nil, frame.Text, payload)
		if n := bytes.IndexByte(enc, 0); n != len(enc)-1 || len(enc) > frame.EncodedLen(len(payload)) {
			t.Fatalf("a zero byte at %d of %d; payload of %d", n, len(enc), len(payload))
		}
		got, errs := collect(frame.NewDecoder(len(payload)), enc)
		if len(errs) > 0 || len(got) != 1 || !bytes.Equal(got[0].Payload, payload) {
			t.Fatalf("decoded to %d frames, errors %v", len(got), errs)
		}
	})
}

func BenchmarkFrames(b *testing.B) {
	text := bytes.Repeat([]byte(`{"type":"stdout","data":"total 68\n"} `), 1700)
	random := make([]byte, 64<<10)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range random {
		random[i] = byte(rng.Uint32())
	}
	for _, c := range []struct {
		name    string
		payload []byte
	}{{"text40", text[:40]}, {"text64K", text[:64<<10-1000]}, {"random64K", random}, {"zeroes64K", make([]byte, 64<<10)}} {
		enc := frame.Append(nil, frame.Binary, c.payload)
		b.Run("append/"+c.name, func(b *testing.B) {
			b.SetBytes(int64(len(c.payload)))
			b.ReportAllocs()
			var dst []byte
			for b.Loop() {
				dst = frame.Append(dst[:0], frame.Binary, c.payload)
			}
		})
		b.Run("decode/"+c.name, func(b *testing.B) {
			b.SetBytes(int64(len(c.payload)))
			b.ReportAllocs()
			d := frame.NewDecoder(frame.MaxFromRuntime)
			for b.Loop() {
				for _, err := range d.Feed(enc) {
					if err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
