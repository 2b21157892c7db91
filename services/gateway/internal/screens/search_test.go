package screens

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/webhook"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/record/recordtest"
	"github.com/millrace/millrace/services/gateway/internal/stream"
)

func TestSearch(t *testing.T) {
	f := serve(t, 0)
	id := f.terminal(wrote("one \x1b[31mred\x1b[m line\r\nsec"), wrote("ond l"), wrote("ine\r\nthird\r\n\x1b[5;1Hon the scr"), wrote("een\x1b[2J"), exit(0))
	tests := []struct {
		q, after string
		want     string
	}{
		{"red line", "0", "3 one red line"},
		{"second line", "0", "5 second line"},
		{"line", "0", "3 one red line|5 second line"},
		{"line", "3", "5 ond line"},
		{"on the screen", "0", "6 on the screen"},
		{"[31m", "0", ""},
		{"missing", "0", ""},
	}
	for _, tt := range tests {
		status, body := f.get("/v1/processes/" + string(id) + "/search?q=" + url.QueryEscape(tt.q) + "&after=" + tt.after)
		var got found
		if err := json.Unmarshal([]byte(body), &got); err != nil || status != 200 {
			t.Fatalf("%q: %d %s", tt.q, status, body)
		}
		var hits []string
		for _, h := range got.Hits {
			hits = append(hits, fmt.Sprint(h.Seq, " ", h.Line))
		}
		if s := strings.Join(hits, "|"); s != tt.want || got.Next != 0 {
			t.Errorf("%q after %s: got %q, next %d, want %q", tt.q, tt.after, s, got.Next, tt.want)
		}
	}
	for _, query := range []string{"", "q=", "q=%ff", "q=x&after=99", "q=" + strings.Repeat("x", maxQuery+1)} {
		if status, body := f.get("/v1/processes/" + string(id) + "/search?" + query); status != 400 {
			t.Errorf("%q: %d %s", query, status, body)
		}
	}
}

// A search that goes on at next finds each line once.
func TestSearchContinues(t *testing.T) {
	f := serve(t, 0)
	var all []process.Body
	const lines = 3*maxHits + 7
	for i := range lines {
		all = append(all, wrote("needle %d\r\nother\r\nnee", i), wrote("d %d\r\n", i))
	}
	id := f.terminal(all...)
	seen := make(map[string]int)
	for after, n := process.Seq(0), 0; ; n++ {
		_, body := f.get(fmt.Sprintf("/v1/processes/%s/search?q=needle&after=%d", id, after))
		var got found
		if err := json.Unmarshal([]byte(body), &got); err != nil || n > lines {
			t.Fatalf("%s: %v", body, err)
		}
		for _, h := range got.Hits {
			seen[h.Line]++
		}
		if after = got.Next; after == 0 {
			break
		}
	}
	for i := range lines {
		if n := seen[fmt.Sprint("needle ", i)]; n != 1 {
			t.Errorf("line %d found %d times", i, n)
		}
	}
}

// output returns the joined output of an asciicast, with the exact bytes of what is not UTF-8.
func output(t *testing.T, cast string) (out []byte, marks []string) {
	t.Helper()
	var last []byte
	first := true
	for line := range strings.Lines(cast) {
		if first {
			first = false
			continue
		}
		var e []json.RawMessage
		var code, text string
		if err := json.Unmarshal([]byte(line), &e); err != nil || len(e) != 3 {
			t.Fatalf("%q: %v", line, err)
		}
		json.Unmarshal(e[1], &code)
		json.Unmarshal(e[2], &text)
		switch code {
		case "o":
			out = append(out, last...)
			last = []byte(text)
		case "b":
			last, _ = base64.StdEncoding.DecodeString(text)
		default:
			marks = append(marks, code+" "+text)
		}
	}
	return append(out, last...), marks
}

func TestExport(t *testing.T) {
	f := serve(t, 0)
	id := f.terminal(wrote("a\"\\\x00\x1b[m\r\n\xe6\x97"), wrote("\xa5b"), process.Resized{Size: process.Size{Cols: 10, Rows: 2}}, wrote("\xff\xe6"), process.Truncated{Stream: process.PTY, Dropped: 5}, wrote("\xf0\x9f"), exit(3))
	status, body := f.get("/v1/processes/" + string(id) + "/export.cast")
	want := `{"version":2,"width":20,"height":3,"timestamp":1767323045,"command":"sh"}
[0.000000, "o", "a\"\\\u0000\u001b[m\r\n"]
[0.000000, "o", "日b"]
[0.000000, "r", "10x2"]
[0.000000, "o", "` + "\uFFFD" + `"]
[0.000000, "b", "/w=="]
[0.000000, "o", "` + "\uFFFD" + `"]
[0.000000, "b", "5g=="]
[0.000000, "m", "gap: 5 bytes of output were dropped"]
[0.000000, "o", "` + "\uFFFD\uFFFD" + `"]
[0.000000, "b", "8J8="]
[0.000000, "x", "3"]
`
	if status != 200 || body != want {
		t.Errorf("%d\n%s\nwant\n%s", status, body, want)
	}
}

// The joined output of an export is the output of the record, however it is split.
func TestExportIsLossless(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var want []byte
		e := &cast{}
		var got []byte
		for range rnd.IntN(20) + 1 {
			part := []byte(strings.Repeat("日é👍", 3)[rnd.IntN(9) : 9+rnd.IntN(18)])
			if rnd.IntN(3) == 0 {
				part = append(part, byte(rnd.IntN(256)))
			}
			want = append(want, part...)
			var err error
			if got, err = e.AppendEvent(got, process.Event{Seq: 1, Time: recordtest.Epoch(), Body: process.Wrote{Data: part}}); err != nil {
				t.Fatal(err)
			}
		}
		if out, _ := output(t, string(e.AppendEnd(got, nil))); !bytes.Equal(out, want) {
			t.Fatalf("got %q, want %q", out, want)
		}
	}
}

// An export that was broken off says so.
func TestExportBrokenOff(t *testing.T) {
	e := &cast{}
	out, marks := output(t, string(e.AppendEnd(nil, kind.New(kind.Unavailable, "drain", "", ""))))
	if len(out) != 0 || len(marks) != 1 || !strings.HasPrefix(marks[0], "m "+Incomplete) {
		t.Errorf("got %q, %q", out, marks)
	}
}

type sandboxes struct{ *recordtest.Gateway }

func (sandboxes) FindSandbox(_ context.Context, p core.Principal, id sandbox.ID) (sandbox.State, error) {
	st := sandbox.State{ID: id, Tenant: recordtest.Tenant, Created: recordtest.Epoch(), Started: recordtest.Epoch().Add(time.Second), Ended: recordtest.Epoch().Add(time.Hour), Driver: "process", Request: sandbox.Requested{Template: "base"}, Phase: sandbox.PhaseDestroyed}
	if !p.MayAccess(&st) || id != "i1" {
		return st, kind.New(kind.NotFound, "find", "", "sandbox not found")
	}
	return st, nil
}

func (sandboxes) SandboxLifecycle(_ context.Context, _ string, _ sandbox.ID, yield func(webhook.Event) bool) error {
	for i, e := range []webhook.Event{{Type: webhook.Created, Template: "base"}, {Type: webhook.Paused, Reason: "idle"}, {Type: webhook.Resumed}, {Type: webhook.Checkpointed, Snapshot: "s1"}, {Type: webhook.Killed}} {
		e.Time = recordtest.Epoch().Add(time.Duration(i) * time.Minute)
		yield(e)
	}
	return nil
}

func TestSandboxTimeline(t *testing.T) {
	book := sandboxes{recordtest.New("i1")}
	streams := stream.New(stream.Config{})
	f := &fixture{t: t, book: book.Gateway, url: recordtest.Serve(t, streams, New(Config{Records: book, Sandboxes: book, SandboxLog: book, Streams: streams}).Register)}
	id := f.terminal(exit(3))
	status, body := f.get("/v1/timeline/i1")
	var got sandboxBody
	if err := json.Unmarshal([]byte(body), &got); err != nil || status != 200 {
		t.Fatalf("%d %s: %v", status, body, err)
	}
	var marks []string
	for _, m := range got.Marks {
		marks = append(marks, strings.TrimSpace(m.Kind+" "+m.Text))
	}
	if s := strings.Join(marks, "|"); s != "created base|started process|paused idle|resumed|snapshot s1|ended destroyed" {
		t.Error(s)
	}
	if len(got.Processes) != 1 || got.Processes[0].ID != id || got.Processes[0].Status != "exited" {
		t.Errorf("%+v", got.Processes)
	}
	if status, _ := f.get("/v1/timeline/i2"); status != 404 {
		t.Errorf("another sandbox: %d", status)
	}
}
