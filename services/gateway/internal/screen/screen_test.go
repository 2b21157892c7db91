package screen

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

func fold(cols, rows int, out string) *Screen {
	s := New(cols, rows, false)
	s.Write([]byte(out))
	return s
}

// text returns the rows without the empty ones at the end.
func text(s *Screen) string { return strings.TrimRight(s.String(), "\n") }

func TestFold(t *testing.T) {
	tests := []struct{ name, out, want string }{
		{"text", "ab\r\ncd", "ab\ncd"},
		{"line feed keeps the column", "ab\ncd", "ab\n  cd"},
		{"wrap", "0123456789ab", "0123456789\nab"},
		{"wrap waits for the next character", "0123456789\r\nx", "0123456789\nx"},
		{"scroll", "1\r\n2\r\n3\r\n4\r\n5", "2\n3\n4\n5"},
		{"wide", "日本語", "日本語"},
		{"wide wraps whole", "012345678日", "012345678\n日"},
		{"half of a wide character overwritten", "日本\x1b[1;2Hx", " x本"},
		{"combining", "e\u0301x", "e\u0301x"},
		{"combining across a write of one byte each", "o\u0308", "o\u0308"},
		{"emoji", "👍a", "👍a"},
		{"erase to the cursor only", "abcdef\x1b[1;3H\x1b[1J", "   def"},
		{"insert mode", "abc\x1b[1G\x1b[4hX", "Xabc"},
		{"insert and delete cells", "abcdef\x1b[2G\x1b[2@\x1b[6G\x1b[P", "a  bcef"},
		{"delete lines", "1\r\n2\r\n3\x1b[1;1H\x1b[M", "2\n3"},
		{"insert lines", "1\r\n2\x1b[1;1H\x1b[L", "\n1\n2"},
		{"scroll region", "1\r\n2\r\n3\r\n4\x1b[2;3r\x1b[3;1H\n", "1\n3\n\n4"},
		{"reverse index", "1\r\n2\x1b[1;1H\x1bM", "\n1\n2"},
		{"line drawing", "\x1b(0lqk\x1b(Bq", "┌─┐q"},
		{"alternate buffer and back", "a\x1b[?1049hxyz\x1b[?1049lb", "ab"},
		{"not UTF-8", "a\xffb\xe4c\xc0\xafd", "abcd"},
		{"string is not text", "a\x1bPq#0;2\x1b\\b\x1b]8;;http://x\x07c", "abc"},
		{"cancelled", "a\x1b[12\x18b", "ab"},
		{"tab", "a\tb", "a       b"},
		{"repeat", "x\x1b[3b", "xxxx"},
		{"8-bit controls in UTF-8", "ab\u009b1Gx", "xb"},
		{"NUL", "a\x00b", "ab"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := text(fold(10, 4, tt.out)); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestStyle(t *testing.T) {
	s := fold(40, 2, "a\x1b[1;31mb\x1b[38;2;1;2;3mc\x1b[38:5:200;4:3md\x1b[22;24;39;107me\x1b[m  \x1b[44m ")
	var got strings.Builder
	s.Row(0, func(r *Run) {
		fmt.Fprintf(&got, "%q %s %s %d\n", r.Text, r.FG.AppendJSON(nil), r.BG.AppendJSON(nil), r.Attr)
	})
	want := `"a" null null 0
"b" 1 null 1
"c" "#010203" null 1
"d" 200 null 9
"e" null 15 0
"  " null null 0
" " null 4 0
`
	if got.String() != want {
		t.Errorf("got\n%swant\n%s", got.String(), want)
	}
}

// A size from outside cannot make a screen large.
func TestSizeIsBounded(t *testing.T) {
	s := New(1<<30, 1<<30, false)
	s.Resize(1<<31-1, 5)
	if cols, rows := s.Size(); cols != MaxCols || rows != 5 {
		t.Errorf("got %d by %d", cols, rows)
	}
	s.Write([]byte("\x1b[99999999999999999999;99999999999999999999Hx\x1b[999999999b\x1b[999999999L\x1b[999999999@"))
}

// The state of a screen does not grow with what is written.
func TestMemoryIsBounded(t *testing.T) {
	for _, out := range []string{"\x1b]0;", "x\u0301\u0302", "\x1b[", "1;", "\u0301", "\x1bP", "e\u0301\r"} {
		s := New(80, 24, false)
		s.Write([]byte("\x1b]0;a"))
		s.Write(bytes.Repeat([]byte(out), 1<<19))
		b, err := s.Append(nil)
		if err != nil || len(b) > 1<<20 || len(s.clusters) > s.maxClusters() {
			t.Errorf("%q: %d bytes, %d clusters, %v", out, len(b), len(s.clusters), err)
		}
	}
}

// FuzzFold holds that any output can be folded, that its split into writes makes no
// difference, and that a key frame restores the state.
func FuzzFold(f *testing.F) {
	for _, s := range []string{
		"abc", "\x1b[31mx\x1b[2J\x1b[H", "日本\x1b[1;2Hx", "e\u0301\x1b[?1049h\x1b[5;6r\x1bM", "\x1b]2;title\x07\x1b[38:2::1:2:3m\xff\xe4",
		"\x1b[4h日\x1b[3@\x1b[2P\x1b[1J\x1b[K", "\x1b(0abc\x0e\x0f\x1b7\x1b8\x1bc", "\x1b[?6h\x1b[2;3r\x1b[9A\x1b[L\x1b[M\x1b['}\x1b[2 @",
	} {
		f.Add([]byte(s), uint8(3), uint8(20), uint8(5))
	}
	f.Fuzz(func(t *testing.T, out []byte, cut, cols, rows uint8) {
		whole := New(int(cols), int(rows), false)
		whole.Write(out)
		parts := New(int(cols), int(rows), false)
		at := min(int(cut), len(out))
		parts.Write(out[:at])
		frame, err := parts.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		restored, err := Parse(frame)
		if err != nil {
			t.Fatal(err)
		}
		for i := range out[at:] {
			parts.Write(out[at+i : at+i+1])
		}
		restored.Write(out[at:])
		want := state(t, whole)
		if got := state(t, parts); got != want {
			t.Errorf("split at each byte:\n%s\nwhole:\n%s", parts, whole)
		}
		if got := state(t, restored); got != want {
			t.Errorf("restored:\n%s\nwhole:\n%s", restored, whole)
		}
		for _, b := range whole.bufs {
			for y, row := range b.rows {
				for x, c := range row {
					if wide := c.width == 2; wide != (x+1 < len(row) && row[x+1].width == 0) {
						t.Fatalf("row %d, column %d: half of a wide character", y, x)
					}
				}
			}
		}
		whole.Resize(int(rows)+1, int(cols)+1)
		whole.Resize(3, 2)
		whole.Write(out)
		state(t, whole)
	})
}

// state returns the encoded state without the numbers of clusters.
func state(t *testing.T, s *Screen) string {
	t.Helper()
	s.collect()
	b, err := s.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Parse(b); err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func log(size int) []byte {
	var b bytes.Buffer
	for i := 0; b.Len() < size; i++ {
		fmt.Fprintf(&b, "\x1b[32mline\x1b[0m %d of a build log that is eighty columns wide or so, more or less\r\n", i)
	}
	return b.Bytes()[:size]
}

func BenchmarkFold(b *testing.B) {
	out := log(256 << 10)
	s := New(80, 24, false)
	b.SetBytes(int64(len(out)))
	b.ReportAllocs()
	for b.Loop() {
		s.Write(out)
	}
}

func BenchmarkFrame(b *testing.B) {
	s := fold(80, 24, string(log(64<<10)))
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf, _ = s.Append(buf[:0])
		if _, err := Parse(buf); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(buf)), "bytes/frame")
}
