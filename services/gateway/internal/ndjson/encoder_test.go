package ndjson

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
)

const id = process.ID("01jd0000000000000000000000-i1")

func out(s process.Stream, data string) process.Body {
	return process.Wrote{Stream: s, Data: []byte(data)}
}

func code(n int32) process.Body {
	return process.Finished{Exit: process.Exit{Code: &n, Cause: process.CauseExited}}
}

// encode writes a record and returns the lines.
func encode(t testing.TB, n *encoder, end error, bodies ...process.Body) string {
	t.Helper()
	var dst []byte
	for i, b := range bodies {
		var err error
		if dst, err = n.AppendEvent(dst, process.Event{Seq: process.Seq(i) + 1, Body: b}); err != nil {
			t.Fatal(err)
		}
	}
	return string(n.AppendEnd(dst, end))
}

// TestEncoderWritesOneLinePerOutputLine covers C-034.
func TestEncoderWritesOneLinePerOutputLine(t *testing.T) {
	const start = `{"type":"start","pid":87654,"process":"` + string(id) + `"}` + "\n"
	drained := kind.New(kind.Unavailable, "stream", "", "drain")
	tests := []struct {
		name   string
		bodies []process.Body
		end    error
		want   string
	}{
		{"seq 1 5", []process.Body{process.Accepted{}, process.Started{PID: 87654}, out(1, "1\n2\n3\n"), out(1, "4\n5\n"),
			process.Exited{}, code(0)}, nil,
			start + `{"type":"stdout","data":"1\n"}
{"type":"stdout","data":"2\n"}
{"type":"stdout","data":"3\n"}
{"type":"stdout","data":"4\n"}
{"type":"stdout","data":"5\n"}
{"type":"end","exit_code":0}
`},
		{"a line split across frames is one event", []process.Body{out(1, "a"), out(1, "b"), out(1, "c\nd"), out(1, "\n"), code(0)}, nil,
			`{"type":"stdout","data":"abc\n"}
{"type":"stdout","data":"d\n"}
{"type":"end","exit_code":0}
`},
		{"C-014 a last line without a newline stays without one", []process.Body{out(1, "abc"), code(0)}, nil,
			`{"type":"stdout","data":"abc"}
{"type":"end","exit_code":0}
`},
		{"partial lines of two streams do not mix", []process.Body{out(1, "o"), out(2, "e"), out(1, "ut\n"), out(2, "rr\n"), code(3)}, nil,
			`{"type":"stdout","data":"out\n"}
{"type":"stderr","data":"err\n"}
{"type":"end","exit_code":3}
`},
		{"a rune split across frames is complete", []process.Body{out(1, "caf\xc3"), out(1, "\xa9\n"), code(0)}, nil,
			`{"type":"stdout","data":"café\n"}
{"type":"end","exit_code":0}
`},
		{"invalid UTF-8 is replaced", []process.Body{out(1, "\xff\xc3\n\xe2\x82"), code(0)}, nil,
			"{\"type\":\"stdout\",\"data\":\"\uFFFD\uFFFD\\n\"}\n{\"type\":\"stdout\",\"data\":\"\uFFFD\uFFFD\"}\n" + `{"type":"end","exit_code":0}` + "\n"},
		{"empty lines and NULs", []process.Body{out(1, "\n\n\x00\n"), code(0)}, nil,
			`{"type":"stdout","data":"\n"}
{"type":"stdout","data":"\n"}
{"type":"stdout","data":"\u0000\n"}
{"type":"end","exit_code":0}
`},
		{"terminal output is not split at line ends", []process.Body{process.Accepted{Spec: process.Spec{PTY: &process.Size{}}}, out(3, "$ ls\r\na"), out(3, "\xe2"), out(3, "\x82\xac"), code(0)}, nil,
			`{"type":"pty","data":"$ ls\r\na"}
{"type":"pty","data":"€"}
{"type":"end","exit_code":0}
`},
		{"a prompt of a command with stdin is sent at once", []process.Body{process.Accepted{Spec: process.Spec{Stdin: true}}, out(1, "name: "), code(0)}, nil,
			`{"type":"stdout","data":"name: "}
{"type":"end","exit_code":0}
`},
		{"C-038 timeout", []process.Body{out(1, "half"), process.Finished{Exit: process.Exit{Signal: 9, Cause: process.CauseTimeout}}}, nil,
			`{"type":"stdout","data":"half"}
{"type":"end","exit_code":-1}
`},
		{"killed", []process.Body{process.Finished{Exit: process.Exit{Signal: 15, Cause: process.CauseKilled}}}, nil,
			`{"type":"end","exit_code":-1,"signal":15,"cause":"killed"}` + "\n"},
		{"lost is never 0", []process.Body{process.Lost{Reason: "x"}, process.Finished{Exit: process.Exit{Cause: process.CauseHostLost}}}, nil,
			`{"type":"end","exit_code":null,"signal":null,"cause":"host_lost"}` + "\n"},
		{"it never started", []process.Body{process.Failed{Kind: uint32(kind.Invalid), Message: "no such directory"}, process.Finished{Exit: process.Exit{Cause: process.CauseNotStarted}}}, nil,
			`{"type":"error","error_code":"invalid","message":"no such directory"}
{"type":"end","exit_code":null,"signal":null,"cause":"not_started"}
`},
		{"a gap is reported where it is", []process.Body{out(1, "ha"), process.Gap{From: 2, To: 4, Reason: "not stored"}, out(1, "lf\n"), process.Truncated{Stream: 1, Dropped: 7}, code(0)}, nil,
			`{"type":"stdout","data":"ha"}
{"type":"gap","from":2,"to":4,"reason":"not stored"}
{"type":"stdout","data":"lf\n"}
{"type":"truncated","stream":"stdout","dropped":7}
{"type":"end","exit_code":0}
`},
		{"output that is not kept is reported where it is", []process.Body{out(1, "ha"), process.Omitted{Stream: 1, Offset: 2, Bytes: 9}, code(0)}, nil,
			`{"type":"stdout","data":"ha"}
{"type":"omitted","stream":"stdout","bytes":9}
{"type":"end","exit_code":0}
`},
		{"a drain sends everything buffered", []process.Body{out(1, "ab\xe2\x82"), out(2, "x\ny")}, drained,
			`{"type":"stderr","data":"x\n"}
{"type":"stdout","data":"ab"}
{"type":"stdout","data_b64":"4oI="}
{"type":"stderr","data":"y"}
{"type":"reconnect","process":"` + string(id) + `","after":2}
`},
		{"a drain sends a partial rune of a terminal", []process.Body{process.Accepted{Spec: process.Spec{PTY: &process.Size{}}}, out(3, "\xe2\x82")}, drained,
			`{"type":"pty","data_b64":"4oI="}
{"type":"reconnect","process":"` + string(id) + `","after":2}
`},
		{"an internal error hides its cause", nil, errors.New("secret"),
			`{"type":"error","error_code":"internal","message":"internal","process":"` + string(id) + `","after":0}` + "\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := encode(t, newEncoder(id, 0, 0), tt.end, tt.bodies...); got != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
		})
	}
}

func TestALineLongerThanMaxLineIsSplit(t *testing.T) {
	long := strings.Repeat("é", 3*MaxLine/4) + "\n"
	var bodies []process.Body
	for rest := long; rest != ""; {
		n := min(len(rest), 100_001)
		bodies = append(bodies, out(1, rest[:n]))
		rest = rest[n:]
	}
	got, lines := "", 0
	for line := range strings.Lines(encode(t, newEncoder(id, 0, 0), nil, bodies...)) {
		var l struct{ Data string }
		if err := json.Unmarshal([]byte(line), &l); err != nil || len(l.Data) > MaxLine {
			t.Fatalf("line of %d bytes: %v", len(l.Data), err)
		}
		got, lines = got+l.Data, lines+1
	}
	if got != long || lines != 2 {
		t.Errorf("%d bytes in %d lines, want %d in 2", len(got), lines, len(long))
	}
}

// TestKeepalivesAreOptIn covers C-039.
func TestKeepalivesAreOptIn(t *testing.T) {
	if b, wait := newEncoder(id, 0, 0).AppendIdle(nil, time.Hour); len(b) != 0 || wait != 0 {
		t.Errorf("not requested: got %q, wait %v", b, wait)
	}
	n := newEncoder(id, time.Nanosecond, 0)
	n.AppendIdle(nil, 0)
	if b, _ := n.AppendIdle(nil, time.Second); string(b) != `{"type":"keepalive","after":0}`+"\n" {
		t.Errorf("requested: got %q", b)
	}
}

// Whatever the frames, the data of all lines is the text of the output, each line ends at its
// newline, and every line is JSON.
func FuzzLinesAreTheOutput(f *testing.F) {
	f.Add([]byte("a\nb\xc3\xa9\n\xff\n\nend"), uint8(3), false)
	f.Add([]byte("\xf0\x9f\x98\x80\xf0\x9f"), uint8(1), true)
	f.Fuzz(func(t *testing.T, data []byte, size uint8, raw bool) {
		bodies := []process.Body{process.Accepted{Spec: process.Spec{Stdin: raw}}}
		for rest := data; len(rest) > 0; {
			n := min(len(rest), int(size)%9+1)
			bodies = append(bodies, out(1, string(rest[:n])))
			rest = rest[n:]
		}
		got := ""
		for line := range strings.Lines(encode(t, newEncoder(id, 0, 0), nil, append(bodies, code(0))...)) {
			var l struct{ Type, Data string }
			if err := json.Unmarshal([]byte(line), &l); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			if i := strings.IndexByte(l.Data, '\n'); !raw && i >= 0 && i != len(l.Data)-1 {
				t.Fatalf("two lines in %q", l.Data)
			}
			got += l.Data
		}
		if want := string([]rune(string(data))); got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	})
}

// Wherever a drain ends a stream, the bytes that it sent and those in the record after its position are
// the output, once.
func FuzzADrainLosesNothing(f *testing.F) {
	f.Add([]byte("a\nb\xe2\x82\xac\nend"), uint8(2), uint8(3))
	f.Fuzz(func(t *testing.T, data []byte, size, cut uint8) {
		n, step := newEncoder(id, 0, 0), int(size)%9+1
		at := min(int(cut)*step, len(data))
		var dst []byte
		for i := 0; i < at; i += step {
			dst, _ = n.AppendEvent(dst, process.Event{Seq: 1, Body: out(1, string(data[i:min(i+step, at)]))})
		}
		var got []byte
		for line := range strings.Lines(string(n.AppendEnd(dst, kind.New(kind.Unavailable, "", "", "")))) {
			var l struct {
				Data string
				B64  string `json:"data_b64"`
			}
			if err := json.Unmarshal([]byte(line), &l); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			b, err := base64.StdEncoding.DecodeString(l.B64)
			if err != nil {
				t.Fatal(err)
			}
			got = append(append(got, l.Data...), b...)
		}
		// Invalid UTF-8 is replaced in both parts alike.
		if string([]rune(string(got))) != string([]rune(string(data[:at]))) {
			t.Fatalf("got %q, want %q", got, data[:at])
		}
	})
}

func BenchmarkLines(b *testing.B) {
	for _, size := range []int{8, 64, 1024} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			line := strings.Repeat("x", size-1) + "\n"
			e := process.Event{Seq: 1, Body: out(1, strings.Repeat(line, 32<<10/size))}
			n, dst := newEncoder(id, 0, 0), make([]byte, 0, 1<<20)
			b.SetBytes(32 << 10)
			b.ReportAllocs()
			for b.Loop() {
				dst, _ = n.AppendEvent(dst[:0], e)
			}
		})
	}
}
