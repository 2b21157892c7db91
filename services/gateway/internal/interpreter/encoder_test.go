package interpreter

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/stream"
)

func encode(t testing.TB, bodies ...process.Body) string {
	t.Helper()
	return encodeIn(t, stream.New(stream.Config{}).Budget(""), bodies...)
}

func encodeIn(t testing.TB, budget *stream.Budget, bodies ...process.Body) string {
	t.Helper()
	n := newEncoder(budget)
	var dst []byte
	for i, b := range bodies {
		var err error
		if dst, err = n.AppendEvent(dst, process.Event{Seq: process.Seq(i) + 1, Body: b}); err != nil {
			t.Fatal(err)
		}
	}
	return string(n.AppendEnd(dst, nil))
}

func out(s string) process.Body { return process.Wrote{Stream: process.Stdout, Data: []byte(s)} }

const last = `{"type":"end_of_execution"}` + "\n"

func TestEncoderWritesEachLineOnce(t *testing.T) {
	ended := process.Finished{Exit: process.Exit{Cause: process.CauseExited}}
	for _, tt := range []struct {
		name   string
		bodies []process.Body
		want   string
	}{
		{"lines split across frames", []process.Body{out(`{"a"`), out(`:1}` + "\n" + `{"b":2}`), out("\n" + last), ended}, `{"a":1}` + "\n" + `{"b":2}` + "\n" + last},
		{"lines that are not objects are dropped", []process.Body{out("\n\nnoise\n[1]\n{\"a\"\n" + last), ended}, last},
		{"the process's own keepalive is dropped", []process.Body{out(`{"type":"keepalive"}` + "\n" + last), ended}, last},
		{"nothing after the end of the execution", []process.Body{out(last + `{"a":1}` + "\n"), ended}, last},
		{"a kernel that cannot start", []process.Body{process.Failed{Message: "no python3"}, ended},
			`{"type":"error","name":"KernelNotFound","value":"no python3","traceback":"KernelNotFound: no python3"}` + "\n" + last},
		{"a process that ends without an end of execution", []process.Body{process.Wrote{Stream: process.Stderr, Data: []byte("oh")}, process.Finished{Exit: process.Exit{Cause: process.CauseHostLost}}},
			`{"type":"error","name":"ExecutionEnded","value":"the execution was ended: ` + string(process.CauseHostLost) + `: oh","traceback":"ExecutionEnded: the execution was ended: ` + string(process.CauseHostLost) + `: oh"}` + "\n" + last},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := encode(t, tt.bodies...); got != tt.want {
				t.Errorf("%s\nwant\n%s", got, tt.want)
			}
		})
	}
}

func TestEncoderSendsKeepalives(t *testing.T) {
	n := newEncoder(stream.New(stream.Config{}).Budget(""))
	if got, wait := n.AppendIdle(nil, 0); len(got) > 0 || wait <= 0 || wait > keepalive {
		t.Errorf("at once: %q, then %v", got, wait)
	}
	n.ended = true
	if got, _ := n.AppendIdle(nil, time.Hour); len(got) > 0 {
		t.Errorf("after the end: %q", got)
	}
}

// A line that is too long is dropped as a whole, and the omission is reported.
func TestALineThatIsTooLongIsReplaced(t *testing.T) {
	const result = `{"type":"result","text":"x"}` + "\n"
	piece := `{"type":"result"}` + strings.Repeat(" ", 1<<20)
	bodies := []process.Body{out(result)}
	for range maxLine >> 20 {
		bodies = append(bodies, out(piece))
	}
	got := untimed(encode(t, append(bodies, out(piece+"\n"+result), out(last))...))
	if want := result + omitted(tooLong) + result + last; got != want {
		t.Errorf("%d bytes: %.300q, want %q", len(got), got, want)
	}
}

func omitted(why string) string {
	return `{"type":"stderr","text":"A line of ` + why + `: write such results to files.\n","timestamp":0}` + "\n"
}

// untimed sets all timestamps to 0.
func untimed(s string) string {
	return regexp.MustCompile(`"timestamp":[0-9]+`).ReplaceAllString(s, `"timestamp":0`)
}

// A line beyond the budget is dropped; the budget is released once a line has been sent.
func TestALineBeyondTheBudgetIsReplaced(t *testing.T) {
	const result = `{"type":"result","text":"x"}` + "\n"
	partial := `{"type":"result"}` + strings.Repeat(" ", 1<<20)
	streams := stream.New(stream.Config{Budget: 3 << 20})
	first := newEncoder(streams.Budget("a"))
	if got, err := first.AppendEvent(nil, process.Event{Body: out(partial)}); err != nil || len(got) > 0 {
		t.Fatalf("a partial line: %q, %v", got, err)
	}
	if got, want := untimed(encodeIn(t, streams.Budget("a"), out(partial), out("\n"+result+last))), omitted(overBudget)+result+last; got != want {
		t.Errorf("while another stream buffers a long line: %.300q, want %q", got, want)
	}
	if got, want := encodeIn(t, streams.Budget("b"), out(partial), out("\n"+last)), partial+"\n"+last; got != want {
		t.Errorf("another tenant's: %.300q, want %.300q", got, want)
	}
	if got, err := first.AppendEvent(nil, process.Event{Body: out("\n")}); err != nil || string(got) != partial+"\n" {
		t.Fatalf("the line: %.300q, %v", got, err)
	}
	first.AppendIdle(nil, 0)
	if got, want := encodeIn(t, streams.Budget("a"), out(partial), out("\n"+last)), partial+"\n"+last; got != want {
		t.Errorf("after it: %.300q, want %.300q", got, want)
	}
}

func TestPartsJoinToTheCode(t *testing.T) {
	for _, code := range []string{"", "x", strings.Repeat("ä", maxPart), "x" + strings.Repeat("😀", maxPart)} {
		all := parts(code)
		if strings.Join(all, "") != code {
			t.Errorf("%d bytes are not the same", len(code))
		}
		for _, p := range all {
			if len(p) > maxPart || strings.ToValidUTF8(p, "?") != p {
				t.Errorf("a part of %d bytes", len(p))
			}
		}
	}
}

// Whatever a sandbox prints, a client receives JSON lines with one end.
func FuzzEncoder(f *testing.F) {
	f.Add([]byte(`{"type":"result"}`+"\n"+last), 5)
	f.Add([]byte("\xff{\n{}\n"), 1)
	f.Fuzz(func(t *testing.T, data []byte, cut int) {
		cut = max(0, min(cut, len(data)))
		got := encode(t, out(string(data[:cut])), out(string(data[cut:])), process.Finished{})
		ends := 0
		for l := range strings.Lines(got) {
			if !json.Valid([]byte(l)) || l[0] != '{' {
				t.Errorf("%q", l)
			}
			var is struct {
				Type string `json:"type"`
			}
			if json.Unmarshal([]byte(l), &is) == nil && is.Type == "end_of_execution" {
				ends++
			}
		}
		if ends != 1 {
			t.Errorf("%d ends in %q", ends, got)
		}
	})
}
