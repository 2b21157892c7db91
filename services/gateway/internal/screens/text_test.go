package screens

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/millrace/millrace/events/process"
)

func out(format string, args ...any) process.Wrote {
	return process.Wrote{Stream: process.Stdout, Data: fmt.Appendf(nil, format, args...)}
}

// pipes begins the record of a process without a terminal.
func (f *fixture) pipes(bodies ...process.Body) process.ID {
	id := process.NewID("i1")
	f.book.Append(id, append([]process.Body{process.Accepted{Spec: process.Spec{Cmd: "make"}}, process.Started{PID: 7}}, bodies...)...)
	return id
}

func TestText(t *testing.T) {
	f := serve(t, 0)
	failed := process.Wrote{Stream: process.Stderr, Data: []byte("no rule\n")}
	id := f.pipes(out("one\n\xe6\x97"), failed, out("\xa5\n"), process.Signaled{Signal: 15}, process.Truncated{Dropped: 9}, exit(2))
	tests := []struct {
		query  string
		status int
		want   string
	}{
		{"", 200, `{"seq":8,"last":8,"ended":true,"earlier":0,"parts":[` +
			`{"seq":3,"type":"stdout","text":"one\n"},{"seq":4,"type":"stderr","text":"no rule\n"},{"seq":5,"type":"stdout","text":"日\n"},` +
			`{"seq":6,"type":"signal","text":"signal 15"},{"seq":7,"type":"gap","text":"9 bytes of output were dropped"}]}`},
		{"?seq=4", 200, `{"seq":4,"last":8,"ended":true,"earlier":0,"parts":[{"seq":3,"type":"stdout","text":"one\n"},{"seq":4,"type":"stderr","text":"no rule\n"}]}`},
		{"?seq=4&bytes=8", 200, `{"seq":4,"last":8,"ended":true,"earlier":3,"parts":[{"seq":4,"type":"stderr","text":"no rule\n"}]}`},
		{"?seq=4&bytes=1", 200, `"earlier":3,"parts":[{"seq":4,`},
		{"?seq=2", 200, `{"seq":2,"last":8,"ended":true,"earlier":0,"parts":[]}`},
		{"?seq=9", 400, `"error_code":"out_of_range","last":8`},
		{"?bytes=0", 400, `bytes: must be a number from 1 to 1048576`},
	}
	for _, tt := range tests {
		if status, got := f.get("/v1/processes/" + string(id) + "/text" + tt.query); status != tt.status || !strings.Contains(got, tt.want) {
			t.Errorf("%q: %d\n%s, want %d\n%s", tt.query, status, got, tt.status, tt.want)
		}
	}
}

// The texts of a record, each the one before the next, are its output, whatever their size.
func TestTextsJoinToTheOutput(t *testing.T) {
	f := serve(t, 0)
	const events = 3000
	var all []process.Body
	for i := range events {
		all = append(all, out("line %d\n", i))
		for range i % 3 {
			all = append(all, process.StdinAcked{Offset: 1})
		}
	}
	id := f.pipes(append(all, exit(0))...)
	read := func(bytes int) (text string, requests int) {
		for at := process.Seq(0); ; requests++ {
			var body textBody
			status, got := f.get(fmt.Sprintf("/v1/processes/%s/text?seq=%d&bytes=%d", id, at, bytes))
			if err := json.Unmarshal([]byte(got), &body); err != nil || status != 200 {
				t.Fatalf("%d %v %s", status, err, got)
			}
			var part strings.Builder
			for _, p := range body.Parts {
				if p.Type == "stdout" {
					part.WriteString(p.Text)
				}
			}
			if text = part.String() + text; body.Earlier == 0 {
				return text, requests + 1
			}
			at = body.Earlier
		}
	}
	var want strings.Builder
	for i := range events {
		fmt.Fprintf(&want, "line %d\n", i)
	}
	for _, bytes := range []int{300, 64 << 10} {
		text, requests := read(bytes)
		if text != want.String() {
			t.Errorf("%d bytes at a time: %d bytes, want %d", bytes, len(text), want.Len())
		}
		if least := want.Len() / bytes; requests < least || requests > 2*least+3 {
			t.Errorf("%d bytes at a time: %d requests", bytes, requests)
		}
	}
}

// A reader that may see a record up to an event receives the end of what it may see.
func TestLiveEndsAtTheLastEventShown(t *testing.T) {
	e := &encoder{id: "p"}
	dst, err := e.AppendEvent(nil, process.Event{Body: shown{frame: frameOf(&folded{seq: 3, last: 3, screen: newScreen(&process.Spec{})}, nil)}})
	if err != nil {
		t.Fatal(err)
	}
	if got := string(e.AppendEnd(dst, nil)); strings.Count(got, "event: end") != 1 || !strings.Contains(got, `data: {"seq":3,"status":"until","code":null}`) {
		t.Errorf("without an end of the process: %s", got)
	}
	code := int32(1)
	e = &encoder{id: "p"}
	dst, err = e.AppendEvent(nil, process.Event{Body: shown{frame: frameOf(&folded{seq: 3, last: 3, end: &process.Exit{Code: &code, Cause: process.CauseExited}, screen: newScreen(&process.Spec{})}, nil)}})
	if err != nil {
		t.Fatal(err)
	}
	if got := string(e.AppendEnd(dst, nil)); strings.Count(got, "event: end") != 1 || !strings.Contains(got, `"status":"exited","code":1`) {
		t.Errorf("with one: %s", got)
	}
}
