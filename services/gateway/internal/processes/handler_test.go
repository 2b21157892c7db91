package processes

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/paging"
	"github.com/millrace/millrace/services/gateway/internal/record/recordtest"
	"github.com/millrace/millrace/services/gateway/internal/stream"
)

type header = map[string]string

func serve(t testing.TB, b *recordtest.Gateway) (url string, streams *stream.Streams) {
	t.Helper()
	streams = stream.New(stream.Config{})
	h := &Handler{core: b, streams: streams}
	return recordtest.Serve(t, streams, h.Register), streams
}

// script appends a record of five events, of four without the end.
func script(b *recordtest.Gateway, finished bool) process.ID {
	id, code := process.NewID("i1"), int32(0)
	b.Append(id, process.Accepted{Spec: process.Spec{Cmd: "true"}}, process.Started{PID: 7},
		process.Wrote{Stream: process.Stdout, Data: []byte("hi\n")}, process.Wrote{Stream: process.Stdout, Offset: 3, Data: []byte{0xff}})
	if finished {
		b.Append(id, process.Finished{Exit: process.Exit{Code: &code, Cause: process.CauseExited}})
	}
	return id
}

const at = `"time":"2026-01-02T03:04:05Z","type":`

// line returns the n-th line of script.
func line(n int) string {
	return [...]string{
		`{"seq":1,` + at + `"accepted","cmd":"true","args":[]}`,
		`{"seq":2,` + at + `"start","pid":7}`,
		`{"seq":3,` + at + `"stdout","offset":0,"data":"hi\n"}`,
		`{"seq":4,` + at + `"stdout","offset":3,"data_b64":"/w=="}`,
		`{"seq":5,` + at + `"end","exit_code":0,"signal":null,"cause":"exited"}`,
	}[n-1]
}

func ndlines(from, to int) string {
	var b strings.Builder
	for n := from; n <= to; n++ {
		b.WriteString(line(n) + "\n")
	}
	return b.String()
}

func sse(from, to int) string {
	var b strings.Builder
	for n := from; n <= to; n++ {
		var e struct{ Type string }
		if err := json.Unmarshal([]byte(line(n)), &e); err != nil {
			panic(err)
		}
		fmt.Fprintf(&b, "id: %d\nevent: %s\ndata: %s\n\n", n, e.Type, line(n))
	}
	return b.String()
}

func TestEventsStreamsEveryEventOnce(t *testing.T) {
	browser := func(last string) header { return header{"Accept": "text/event-stream", "Last-Event-ID": last} }
	tests := []struct {
		name   string
		query  string
		header header
		status int
		want   string
	}{
		{"all", "", nil, 200, ndlines(1, 5)},
		{"after an event", "?after=3", nil, 200, ndlines(4, 5)},
		{"after the last", "?after=5", nil, 200, ""},
		{"now", "?after=now", nil, 200, ""},
		{"limit", "?after=1&limit=2", nil, 200, ndlines(2, 3)},
		{"stored only", "?follow=0", nil, 200, ndlines(1, 5)},
		{"SSE", "", header{"Accept": "text/event-stream"}, 200, sse(1, 5)},
		{"SSE reconnect", "?after=1", browser("3"), 200, sse(4, 5)},
		{"SSE reconnect after the end", "", browser("5"), 204, ""},
		{"past the end", "?after=6", nil, 400, `"error_code":"out_of_range","last":5}`},
		{"far past the end", "?after=9223372036854775808", nil, 400, `"error_code":"out_of_range","last":5}`},
		{"negative", "?after=-1", nil, 400, `"invalid"`},
		{"no number", "?after=abc", nil, 400, `"invalid"`},
		{"too large a number", "?after=18446744073709551616", nil, 400, `"invalid"`},
		{"limit 0", "?limit=0", nil, 400, `"invalid"`},
		{"negative limit", "?limit=-1", nil, 400, `"invalid"`},
		{"Last-Event-ID is negative", "", browser("-1"), 400, `"invalid"`},
		{"Last-Event-ID is garbage", "", browser("1 2"), 400, `"invalid"`},
		{"Last-Event-ID is long", "", browser(strings.Repeat("1", 8000)), 400, `"invalid"`},
		{"Last-Event-ID is past the end", "", browser("9"), 400, `"out_of_range"`},
		{"another tenant's", "", header{recordtest.HeaderTenant: "t2"}, 404, `"not_found"`},
		{"another sandbox's token", "", header{recordtest.HeaderSandbox: "i2"}, 404, `"not_found"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := recordtest.New("i1")
			id := script(b, true)
			url, _ := serve(t, b)
			resp, body := recordtest.Do(t, url, recordtest.Request{Method: "GET", Path: "/v1/processes/" + string(id) + "/events" + tt.query, Header: tt.header})
			if resp.StatusCode != tt.status || tt.status < 300 && body != tt.want || !strings.Contains(body, tt.want) {
				t.Errorf("%d\n%s\nwant\n%s", resp.StatusCode, body, tt.want)
			}
			if tt.status == 200 && resp.Header.Get("X-Process-Id") != string(id) {
				t.Errorf("X-Process-Id %q", resp.Header.Get("X-Process-Id"))
			}
		})
	}
}

func TestExpiredEventsAre410(t *testing.T) {
	b := recordtest.New("i1")
	id := script(b, true)
	b.Forget(id, 3)
	url, _ := serve(t, b)
	path := "/v1/processes/" + string(id) + "/events"
	if resp, body := recordtest.Do(t, url, recordtest.Request{Method: "GET", Path: path}); resp.StatusCode != 410 || !strings.Contains(body, `"gone"`) {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	if resp, body := recordtest.Do(t, url, recordtest.Request{Method: "GET", Path: path + "?after=2"}); resp.StatusCode != 200 || body != ndlines(3, 5) {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

// A client that disconnects after every event and reconnects receives each once.
func TestReconnectAfterEveryEvent(t *testing.T) {
	b := recordtest.New("i1")
	id := script(b, true)
	url, _ := serve(t, b)
	got := ""
	for after := range 5 {
		_, body := recordtest.Do(t, url, recordtest.Request{Method: "GET", Path: fmt.Sprintf("/v1/processes/%s/events?limit=1&after=%d", id, after)})
		got += body
	}
	if got != ndlines(1, 5) {
		t.Errorf("got\n%s", got)
	}
}

func TestDrainEndsStreamWithPosition(t *testing.T) {
	tests := []struct {
		name         string
		header       header
		before, last string
	}{
		{"NDJSON", nil, ndlines(1, 4), `{"type":"reconnect","process":"%s","after":4}` + "\n"},
		{"SSE", header{"Accept": "text/event-stream"}, sse(1, 4), "retry: 1000\n\nevent: reconnect\ndata: {\"type\":\"reconnect\",\"process\":\"%s\",\"after\":4}\n\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := recordtest.New("i1")
			id := script(b, false)
			url, streams := serve(t, b)
			resp := recordtest.Open(t, url, recordtest.Request{Method: "GET", Path: "/v1/processes/" + string(id) + "/events", Header: tt.header})
			r := bufio.NewReader(resp.Body)
			got := make([]byte, len(tt.before))
			if _, err := io.ReadFull(r, got); err != nil || string(got) != tt.before {
				t.Fatalf("%v\n%s", err, got)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := streams.Drain(ctx); err != nil {
				t.Fatal(err)
			}
			rest, err := io.ReadAll(r)
			if want := fmt.Sprintf(tt.last, id); err != nil || string(rest) != want {
				t.Errorf("got %q, %v; want %q", rest, err, want)
			}
		})
	}
}

func TestKeepalivesFillSilence(t *testing.T) {
	b := recordtest.New("i1")
	id := script(b, false)
	url, _ := serve(t, b)
	for name, tt := range map[string]struct{ accept, want string }{
		"NDJSON": {"", `{"type":"keepalive","after":4}` + "\n"},
		"SSE":    {"text/event-stream", ": keepalive\n\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			resp := recordtest.Open(t, url, recordtest.Request{Method: "GET", Path: "/v1/processes/" + string(id) + "/events?after=4",
				Header: header{"Accept": tt.accept, "Keepalive-Ping-Interval": "1"}})
			got := make([]byte, len(tt.want))
			if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != tt.want {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

func TestListGetAndControls(t *testing.T) {
	b := recordtest.New("i1", "i2")
	ended, running, tag := script(b, true), process.NewID("i2"), "web"
	b.Append(running, process.Accepted{Spec: process.Spec{Cmd: "sh", Tag: &tag, PTY: &process.Size{Cols: 80, Rows: 24}}}, process.Started{PID: 9})
	url, _ := serve(t, b)
	has := func(ids ...process.ID) []process.ID { return ids }
	tests := []struct {
		name, method, path, body string
		status                   int
		want                     string
		processes                []process.ID
	}{
		{"all", "GET", "", "", 200, "", has(running, ended)},
		{"in a sandbox", "GET", "?sandbox=i2", "", 200, "", has(running)},
		{"in an invalid sandbox", "GET", "?sandbox=I%21", "", 404, "", nil},
		{"running", "GET", "?state=running", "", 200, "", has(running)},
		{"ended", "GET", "?state=ended", "", 200, "", has(ended)},
		{"of two states", "GET", "?state=starting,running", "", 200, "", has(running)},
		{"invalid state", "GET", "?state=x", "", 400, "", nil},
		{"with a prefix", "GET", "?prefix=" + string(ended), "", 200, "", has(ended)},
		{"with another prefix", "GET", "?prefix=x", "", 200, "[]", nil},
		{"with a tag", "GET", "?tag=web", "", 200, "", has(running)},
		{"with another tag", "GET", "?tag=", "", 200, "[]", nil},
		{"the newest", "GET", "?limit=1", "", 200, "", has(running)},
		{"the page after it", "GET", "?limit=1&nextToken=" + paging.Cursor{ID: string(running)}.String(), "", 200, "", has(ended)},
		{"a page that is too large", "GET", "?limit=101", "", 400, "limit must be between 1 and 100", nil},
		{"an invalid token", "GET", "?nextToken=x", "", 400, "nextToken is invalid", nil},
		{"the token of another list", "GET", "?nextToken=" + paging.Cursor{ID: "x"}.String(), "", 400, "nextToken is invalid", nil},
		{"one", "GET", "/" + string(ended), "", 200, `"exit_code":0,"cause":"exited"`, nil},
		{"one running", "GET", "/" + string(running), "", 200, `"pty":{"cols":80,"rows":24},"state":"running"`, nil},
		{"unknown", "GET", "/" + string(process.NewID("i1")), "", 404, `"not_found"`, nil},
		{"invalid id", "GET", "/x", "", 404, `"not_found"`, nil},
		{"wildcard id", "GET", "/%2A.%3E", "", 404, `"not_found"`, nil},
		{"signal", "POST", "/" + string(running) + "/signal", `{"signal":"INT"}`, 204, "", nil},
		{"no signal", "POST", "/" + string(running) + "/signal", `{}`, 400, "signal is required", nil},
		{"signal after the end", "POST", "/" + string(ended) + "/signal", `{"signal":9}`, 404, "", nil},
		{"stdin", "POST", "/" + string(running) + "/stdin", "ls\n", 204, "", nil},
		{"end of stdin", "POST", "/" + string(running) + "/stdin?eof=1", "", 204, "", nil},
		{"resize", "POST", "/" + string(running) + "/resize", `{"cols":100,"rows":30}`, 204, "", nil},
		{"resize by nonsense", "POST", "/" + string(running) + "/resize", `{"cols":"x"}`, 400, "cols", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			resp, body := recordtest.Do(t, url, recordtest.Request{Method: tt.method, Path: "/v1/processes" + tt.path, Body: tt.body})
			if resp.StatusCode != tt.status || !strings.Contains(body, tt.want) {
				t.Fatalf("%d %s", resp.StatusCode, body)
			}
			var got []struct{ Process process.ID }
			if tt.processes != nil {
				if err := json.Unmarshal([]byte(body), &got); err != nil || len(got) != len(tt.processes) {
					t.Fatalf("%v: %s", err, body)
				}
			}
			for i := range got {
				if got[i].Process != tt.processes[i] {
					t.Errorf("%d: %s", i, body)
				}
			}
		})
	}
	resp, _ := recordtest.Do(t, url, recordtest.Request{Method: "GET", Path: "/v1/processes?limit=1"})
	token := resp.Header.Get("X-Next-Token")
	if cursor, err := paging.ParseCursor(token); err != nil || cursor.ID != string(running) {
		t.Errorf("the token of the next page is %q: %v", token, err)
	}
	if resp, _ := recordtest.Do(t, url, recordtest.Request{Method: "GET", Path: "/v1/processes?limit=1&nextToken=" + token}); resp.Header.Get("X-Next-Token") != "" {
		t.Error("the last page has a token")
	}
	if got, want := strings.Join(b.Calls, ", "), `signal 2, stdin "ls\n" eof=false, stdin "" eof=true, resize 100x30`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
