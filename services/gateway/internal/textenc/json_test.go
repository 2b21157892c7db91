package textenc

import (
	"encoding/json"
	"strings"
	"testing"
)

// wantText returns what the JSON string of b must decode to.
func wantText(b []byte) string { return string([]rune(string(b))) }

func FuzzAppendTextDecodesToItsBytes(f *testing.F) {
	for _, s := range []string{
		"", "1\n", "plain text of more than eight bytes", `quote " back \ slash`, "\x00\x1f\x7f\u0080",
		"\xff\xfe", "caf\xc3\xa9 \xe2\x82", "\u2028\u2029", "1234567\"", "12345678\\", "\x1b[31mred\x1b[0m",
		"\xed\xa0\x80 surrogate", "\U0001F600\xf0\x9f\x98", "\uFFFD",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		line := AppendText([]byte("x"), b)[1:]
		var got string
		if err := json.Unmarshal(line, &got); err != nil {
			t.Fatalf("%q is not JSON: %v", line, err)
		}
		if want := wantText(b); got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
		for _, c := range line {
			if c < ' ' {
				t.Fatalf("raw control character %#x in %q", c, line)
			}
		}
	})
}

func FuzzDecoderSplitsNoRune(f *testing.F) {
	f.Add([]byte("caf\xc3\xa9 \U0001F600 \xff\xf0\x9f end"), uint8(1), uint8(2))
	f.Add([]byte("\xf0\x9f\xe2\x82\xac\xe2\x82"), uint8(1), uint8(1))
	f.Fuzz(func(t *testing.T, b []byte, x, y uint8) {
		var d Decoder
		var got []byte
		step := [2]int{int(x)%7 + 1, int(y)%7 + 1}
		for i, rest := 0, b; len(rest) > 0; i++ {
			n := min(step[i%2], len(rest))
			head, body := d.Feed(rest[:n])
			got = AppendEscaped(AppendEscaped(got, head), body)
			rest = rest[n:]
		}
		got = AppendEscaped(got, d.Flush())
		if want := AppendEscaped(nil, b); string(got) != string(want) {
			t.Fatalf("steps %v: got %q, want %q", step, got, want)
		}
	})
}

func TestDecoderHoldsAtMostThreeBytesOfARune(t *testing.T) {
	var d Decoder
	smile := []byte("\U0001F600")
	for i := range 3 {
		if head, body := d.Feed(smile[i : i+1]); len(head)+len(body) != 0 {
			t.Fatalf("byte %d gave %q %q", i, head, body)
		}
	}
	head, body := d.Feed(append(smile[3:], "ok"...))
	if string(head) != string(smile) || string(body) != "ok" {
		t.Errorf("got %q %q", head, body)
	}
}

func TestCutLenDoesNotTearRunes(t *testing.T) {
	tests := []struct {
		name string
		in   string
		want int
	}{
		{"short", "abc", 3},
		{"ascii", "abcdefgh", 5},
		{"rune across the limit", "abcd\u20ac", 4},
		{"rune before the limit", "ab\u20acde", 5},
		{"invalid UTF-8", "\x80\x80\x80\x80\x80\x80\x80", 5},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := CutLen([]byte(tt.in), 5); got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
}

func BenchmarkAppendText(b *testing.B) {
	for name, in := range map[string]string{
		"log line 64 B": strings.Repeat("INFO 2026 ok ", 5)[:63] + "\n",
		"bulk 32 KiB":   strings.Repeat("yes yes yes yes\n", 2048),
		"cyrillic":      strings.Repeat("привет мир ", 512),
	} {
		b.Run(name, func(b *testing.B) {
			data, dst := []byte(in), make([]byte, 0, 128<<10)
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				dst = AppendText(dst[:0], data)
			}
		})
	}
}
