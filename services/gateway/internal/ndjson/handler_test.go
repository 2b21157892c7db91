package ndjson

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/record/recordtest"
	"github.com/millrace/millrace/services/gateway/internal/stream"
	"github.com/millrace/millrace/services/gateway/internal/textenc"
)

type header = map[string]string

func serve(t testing.TB, b *recordtest.Gateway) (url string, streams *stream.Streams) {
	t.Helper()
	streams = stream.New(stream.Config{})
	h := &Handler{core: b, streams: streams}
	return recordtest.Serve(t, streams, h.Register), streams
}

// prints sets an OnStart whose command prints output and exits with 0.
func prints(b *recordtest.Gateway, output ...string) {
	b.OnStart = func(id process.ID, _ process.Spec) {
		b.Append(id, process.Started{PID: 87654})
		for _, o := range output {
			b.Append(id, out(process.Stdout, o))
		}
		b.Append(id, code(0))
	}
}

// TestCommandsStreamsOutput covers C-034.
func TestCommandsStreamsOutput(t *testing.T) {
	b := recordtest.New("i1")
	prints(b, "1\n2\n3\n", "4\n5\n")
	url, _ := serve(t, b)
	resp, body := recordtest.Do(t, url, recordtest.Request{Method: "POST", Path: "/commands", Body: `{ "cmd": "seq 1 5" }`})
	id := resp.Header.Get("X-Process-Id")
	want := `{"type":"start","pid":87654,"process":"` + id + `"}
{"type":"stdout","data":"1\n"}
{"type":"stdout","data":"2\n"}
{"type":"stdout","data":"3\n"}
{"type":"stdout","data":"4\n"}
{"type":"stdout","data":"5\n"}
{"type":"end","exit_code":0}
`
	if body != want || resp.StatusCode != http.StatusOK {
		t.Errorf("%d\n%s\nwant\n%s", resp.StatusCode, body, want)
	}
	if _, err := process.ParseID(id); err != nil {
		t.Errorf("X-Process-Id %q: %v", id, err)
	}
	if got := resp.Header.Get("Content-Type"); got != textenc.ContentTypeNDJSON {
		t.Errorf("content type %q", got)
	}
}

// TestFirstLineArrivesWhileTheCommandRuns covers C-035.
func TestFirstLineArrivesWhileTheCommandRuns(t *testing.T) {
	b := recordtest.New("i1")
	b.OnStart = func(id process.ID, _ process.Spec) { b.Append(id, process.Started{PID: 1}) }
	url, _ := serve(t, b)
	resp := recordtest.Open(t, url, recordtest.Request{Method: "POST", Path: "/commands", Body: `{"cmd":"sleep 5"}`})
	line, err := bufio.NewReader(resp.Body).ReadString('\n') // its record never ends
	if err != nil || !strings.HasPrefix(line, `{"type":"start"`) {
		t.Errorf("got %q, %v", line, err)
	}
}

// TestCommandBodyBecomesSpecAndTimeout covers C-037.
func TestCommandBodyBecomesSpecAndTimeout(t *testing.T) {
	tests := []struct {
		name, body string
		cmd        string
		args       []string
		timeout    time.Duration
	}{
		{"the default is 60 s, and cmd alone runs in a login shell", `{"cmd":"a b"}`, "/bin/bash", []string{"-l", "-c", "a b"}, time.Minute},
		{"0 is no timeout", `{"cmd":"a","timeout_ms":0}`, "/bin/bash", []string{"-l", "-c", "a"}, 0},
		{"300 ms", `{"cmd":"a","timeout_ms":300}`, "/bin/bash", []string{"-l", "-c", "a"}, 300 * time.Millisecond},
		{"args execute cmd directly", `{"cmd":"a","args":["b c"]}`, "a", []string{"b c"}, time.Minute},
		{"empty args execute cmd directly", `{"cmd":"a","args":[]}`, "a", []string{}, time.Minute},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, err := parseCommand([]byte(tt.body))
			if err != nil || s.Cmd != tt.cmd || strings.Join(s.Args, "\x00") != strings.Join(tt.args, "\x00") || s.Timeout != tt.timeout {
				t.Errorf("got %+v, %v", s, err)
			}
		})
	}
}

func TestInvalidCommandsAre400(t *testing.T) {
	b := recordtest.New("i1")
	prints(b)
	url, _ := serve(t, b)
	for name, body := range map[string]string{
		"empty": ``, "not an object": `[]`, "no cmd": `{}`, "null": `null`, "trailing": `{"cmd":"a"} x`, "bom": "\xef\xbb\xbf{\"cmd\":\"a\"}",
		"negative timeout": `{"cmd":"a","timeout_ms":-1}`, "huge timeout": `{"cmd":"a","timeout_ms":1000000000000000000}`, "float": `{"cmd":"a","timeout_ms":1.5}`,
		"1e999": `{"cmd":"a","timeout_ms":1e999}`, "wrong type": `{"cmd":1}`, "NUL": `{"cmd":"a\u0000"}`, "env twice": `{"cmd":"a","env":{},"envs":{}}`,
		"bad env": `{"cmd":"a","env":{"A=B":"c"}}`, "deep": `{"cmd":` + strings.Repeat("[", 100_000), "huge window": `{"cmd":"a","pty":{"cols":99999,"rows":1}}`,
		"negative window": `{"cmd":"a","pty":{"cols":-1,"rows":1}}`,
	} {
		t.Run(name, func(t *testing.T) {
			resp, got := recordtest.Do(t, url, recordtest.Request{Method: "POST", Path: "/commands", Body: body})
			var e struct {
				ErrorCode string `json:"error_code"`
				Message   string
			}
			if err := json.Unmarshal([]byte(got), &e); err != nil || resp.StatusCode != 400 || e.ErrorCode != "invalid" || e.Message == "" {
				t.Errorf("%d %s", resp.StatusCode, got)
			}
		})
	}
}

func TestCommandsFindTheSandbox(t *testing.T) {
	tests := []struct {
		name   string
		boxes  []string
		path   string
		header header
		status int
		want   string
	}{
		{"the only running one", []string{"i1"}, "/commands", nil, 200, "i1"},
		{"none runs", nil, "/commands", nil, 400, ""},
		{"two run", []string{"i1", "i2"}, "/commands", nil, 400, ""},
		{"query", []string{"i1", "i2"}, "/commands?sandbox=i2", nil, 200, "i2"},
		{"header", []string{"i1", "i2"}, "/commands", header{"E2b-Sandbox-Id": "i2"}, 200, "i2"},
		{"unknown", []string{"i1"}, "/commands?sandbox=i9", nil, 404, ""},
		{"invalid", []string{"i1"}, "/commands?sandbox=%2e%2e", nil, 404, ""},
		{"the token's", []string{"i1", "i2"}, "/commands", header{recordtest.HeaderSandbox: "i1"}, 200, "i1"},
		{"another tenant's", []string{"i1"}, "/commands?sandbox=i1", header{recordtest.HeaderTenant: "t2"}, 404, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := recordtest.New()
			for _, id := range tt.boxes {
				b.AddSandbox(id)
			}
			prints(b)
			url, _ := serve(t, b)
			resp, body := recordtest.Do(t, url, recordtest.Request{Method: "POST", Path: tt.path, Body: `{"cmd":"true"}`, Header: tt.header})
			if resp.StatusCode != tt.status || resp.Header.Get("X-Sandbox-Id") != tt.want {
				t.Errorf("%d %q %s", resp.StatusCode, resp.Header.Get("X-Sandbox-Id"), body)
			}
		})
	}
}

func TestARetriedStartIsOneStart(t *testing.T) {
	b := recordtest.New("i1")
	var forks atomic.Int32
	b.OnStart = func(id process.ID, _ process.Spec) {
		forks.Add(1)
		b.Append(id, process.Started{PID: 5}, out(process.Stdout, "once\n"), code(0))
	}
	url, _ := serve(t, b)
	req := recordtest.Request{Method: "POST", Path: "/commands", Body: `{"cmd":"once"}`, Header: header{"Idempotency-Key": "k1"}}
	_, first := recordtest.Do(t, url, req)
	_, second := recordtest.Do(t, url, req)
	if first != second || forks.Load() != 1 {
		t.Errorf("%d forks\n%s%s", forks.Load(), first, second)
	}
	req.Body = `{"cmd":"twice"}`
	if resp, body := recordtest.Do(t, url, req); resp.StatusCode != 409 || forks.Load() != 1 {
		t.Errorf("another body: %d %s", resp.StatusCode, body)
	}
	req.Header["Idempotency-Key"] = strings.Repeat("k", 256)
	if resp, body := recordtest.Do(t, url, req); resp.StatusCode != 400 {
		t.Errorf("long key: %d %s", resp.StatusCode, body)
	}
}

// TestCommandsListGetAndKill covers C-036.
func TestCommandsListGetAndKill(t *testing.T) {
	b := recordtest.New("i1", "i2")
	running, ended := process.NewID("i1"), process.NewID("i1")
	b.Append(running, process.Accepted{Spec: process.Spec{Cmd: "sleep", Args: []string{"9"}}}, process.Started{PID: 11})
	b.Append(ended, process.Accepted{}, process.Started{PID: 12}, code(4))
	url, _ := serve(t, b)
	tests := []struct {
		name, method, path, body string
		status                   int
		want                     string // part of the response
	}{
		{"list has running commands", "GET", "/commands?sandbox=i1", "", 200, `[{"pid":11,"process":"` + string(running) + `","sandbox":"i1"`},
		{"list with all has every command", "GET", "/commands?all=1", "", 200, `"pid":12`},
		{"list of an empty sandbox", "GET", "/commands?sandbox=i2", "", 200, `[]`},
		{"get by pid", "GET", "/commands/11?sandbox=i1", "", 200, `"state":"running"`},
		{"get an ended command", "GET", "/commands/12?sandbox=i1", "", 200, `"exit_code":4`},
		{"get by id", "GET", "/commands/" + string(ended), "", 200, `"pid":12`},
		{"pid without a sandbox", "GET", "/commands/11", "", 400, "sandboxes are running"},
		{"unknown pid", "GET", "/commands/99?sandbox=i1", "", 404, `"not_found"`},
		{"not a pid", "GET", "/commands/abc?sandbox=i1", "", 404, `"not_found"`},
		{"pid 0", "GET", "/commands/0?sandbox=i1", "", 404, `"not_found"`},
		{"huge pid", "GET", "/commands/99999999999?sandbox=i1", "", 404, `"not_found"`},
		{"kill", "POST", "/commands/11/kill?sandbox=i1", "", 200, `{"pid":11,"process":"` + string(running) + `","signal":9}`},
		{"kill with a signal", "POST", "/commands/11/kill?sandbox=i1", `{"signal":"SIGTERM"}`, 200, `"signal":15`},
		{"kill with an unknown signal", "POST", "/commands/11/kill?sandbox=i1", `{"signal":"SIGX"}`, 400, "unknown signal"},
		{"kill an unknown command", "POST", "/commands/99/kill?sandbox=i1", "", 404, `"not_found"`},
		{"kill an ended command", "POST", "/commands/12/kill?sandbox=i1", "", 404, `"not_found"`},
		{"stdin", "POST", "/commands/11/stdin?sandbox=i1&eof=1", "hi\x00", 204, ""},
		{"resize", "POST", "/commands/11/resize?sandbox=i1", `{"cols":80,"rows":24}`, 204, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			resp, body := recordtest.Do(t, url, recordtest.Request{Method: tt.method, Path: tt.path, Body: tt.body})
			if resp.StatusCode != tt.status || !strings.Contains(body, tt.want) {
				t.Errorf("%d %s", resp.StatusCode, body)
			}
		})
	}
	if got, want := strings.Join(b.Calls, ", "), `signal 9, signal 15, stdin "hi\x00" eof=true, resize 80x24`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestDrainReturnsThePosition(t *testing.T) {
	b := recordtest.New("i1")
	b.OnStart = func(id process.ID, _ process.Spec) {
		b.Append(id, process.Started{PID: 1}, out(process.Stdout, "a\nhalf"))
	}
	url, streams := serve(t, b)
	resp := recordtest.Open(t, url, recordtest.Request{Method: "POST", Path: "/commands", Body: `{"cmd":"x"}`})
	r := bufio.NewReader(resp.Body)
	for range 2 { // start, "a\n"
		if _, err := r.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := streams.Drain(ctx); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(r)
	want := `{"type":"stdout","data":"half"}
{"type":"reconnect","process":"` + resp.Header.Get("X-Process-Id") + `","after":3}
`
	if string(rest) != want || err != nil {
		t.Errorf("got %s, %v, want %s", rest, err, want)
	}
}

func TestADisconnectedClientResumesByLineCount(t *testing.T) {
	b := recordtest.New("i1")
	prints(b, "a\nb", "\nc")
	url, _ := serve(t, b)
	req := recordtest.Request{Method: "POST", Path: "/commands", Body: `{"cmd":"x"}`, Header: header{"Idempotency-Key": "k"}}
	resp, whole := recordtest.Do(t, url, req)
	lines := strings.SplitAfter(whole, "\n")
	id := resp.Header.Get("X-Process-Id")
	for n := range lines {
		want := strings.Join(lines[n:], "")
		skip := "?skip=" + strconv.Itoa(n)
		if _, got := recordtest.Do(t, url, recordtest.Request{Method: "GET", Path: "/commands/" + id + "/stream" + skip}); got != want {
			t.Errorf("GET %s: got %s, want %s", skip, got, want)
		}
		req.Path = "/commands" + skip
		if _, got := recordtest.Do(t, url, req); got != want {
			t.Errorf("POST %s: got %s, want %s", skip, got, want)
		}
	}
	for path, status := range map[string]int{"/commands/" + id + "/stream?skip=-1": 400, "/commands/99/stream": 404} {
		if resp, body := recordtest.Do(t, url, recordtest.Request{Method: "GET", Path: path}); resp.StatusCode != status {
			t.Errorf("%s: %d %s", path, resp.StatusCode, body)
		}
	}
}

func FuzzParseCommandFailsAsInvalid(f *testing.F) {
	f.Add([]byte(`{"cmd":"a","args":["b"],"env":{"A":"b"},"pty":{"cols":1,"rows":2},"timeout_ms":5,"tag":"t"}`))
	f.Add([]byte(`{"cmd":null,"args":null}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		s, err := parseCommand(body)
		if err != nil && !kind.Is(err, kind.Invalid) || err == nil && (s.Cmd == "" || s.Timeout < 0) {
			t.Fatalf("%q gave %+v, %v", body, s, err)
		}
	})
}
