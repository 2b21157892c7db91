package dataplane

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/file"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/record/recordtest"
	"github.com/millrace/millrace/services/gateway/internal/stream"
)

// places finds sandboxes by their ids.
type places map[string]sandbox.State

func (p places) Find(c *fiber.Ctx) (sandbox.State, error) {
	if st, ok := p[c.Params("id")]; ok && auth.From(c).Tenant == recordtest.Tenant {
		return st, nil
	}
	return sandbox.State{}, core.NoSandbox("")
}

// noFiles fails each request for a file.
type noFiles struct{}

func (noFiles) OpenFiles(context.Context, core.Principal, sandbox.ID, *file.Request) (*core.Files, error) {
	return nil, kind.New(kind.NotFound, "files", "", "no files here")
}

// attached has clients in the sandbox i1.
type attached struct{ reasons []string }

func (a *attached) Cancel(_ context.Context, id sandbox.ID, reason string) (bool, error) {
	a.reasons = append(a.reasons, reason)
	return id == "i1", nil
}

const (
	ended = "/v1/sandboxes/sbx_ended"
	at    = "/v1/sandboxes/sbx_i1"
)

func serve(t *testing.T, b *recordtest.Gateway, clients Clients) (url string) {
	t.Helper()
	streams := stream.New(stream.Config{})
	h := New(Config{
		Sandboxes: places{
			"sbx_i1": {ID: "i1", Phase: sandbox.PhaseRunning}, "sbx_i2": {ID: "i2", Phase: sandbox.PhaseRunning},
			"sbx_paused": {ID: "paused", Phase: sandbox.PhasePaused}, "sbx_ended": {ID: "ended", Phase: sandbox.PhaseDestroyed},
		},
		Commands: b, Logs: b, Files: noFiles{}, Streams: streams, Clients: clients,
	})
	return recordtest.Serve(t, streams, h.Register)
}

// do sends a request and returns the status and the body.
func do(t *testing.T, url, method, path, body string, headers ...string) (int, string) {
	t.Helper()
	r := recordtest.Request{Method: method, Path: path, Body: body, Header: map[string]string{}}
	for i := 0; i < len(headers); i += 2 {
		r.Header[headers[i]] = headers[i+1]
	}
	resp, text := recordtest.Do(t, url, r)
	return resp.StatusCode, text
}

// E-100, E-101, E-104: a shell runs the command, with one pipe for both outputs.
func TestExec(t *testing.T) {
	b := recordtest.New("i1")
	var spec process.Spec
	b.OnStart = func(id process.ID, s process.Spec) {
		spec = s
		code := int32(3)
		b.Append(id, process.Started{PID: 1}, process.Wrote{Stream: process.Stdout, Data: []byte("a\n")},
			process.Finished{Exit: process.Exit{Code: &code, Cause: process.CauseExited}})
	}
	url := serve(t, b, nil)
	code, text := do(t, url, http.MethodPost, at+"/exec", `{"command":"echo a && false"}`)
	if code != http.StatusOK || text != `{"output":"a\n","exit_code":3}`+"\n" {
		t.Errorf("%d %s", code, text)
	}
	if spec.Cmd != "/bin/sh" || spec.Helper || spec.Args[len(spec.Args)-1] != "echo a && false" || !strings.HasPrefix(spec.Args[1], "exec 2>&1;") {
		t.Errorf("%+v", spec)
	}
	b.OnStart = func(id process.ID, _ process.Spec) {
		b.Append(id, process.Wrote{Stream: process.Stdout, Data: []byte("\xff")}, process.Finished{Exit: process.Exit{Signal: 9, Cause: process.CauseSignaled}})
	}
	code, text = do(t, url, http.MethodPost, at+"/exec", `{"command":"x"}`)
	if want := `{"output":"` + "\uFFFD" + `","output_b64":"/w==","error":"signaled","message":"signal 9"}` + "\n"; code != http.StatusOK || text != want {
		t.Errorf("%d %s, want %s", code, text, want)
	}
}

// E-103: a client that hangs up ends the command.
func TestAHangUpEndsTheCommand(t *testing.T) {
	b := recordtest.New("i1")
	started := make(chan process.ID, 1)
	b.OnStart = func(id process.ID, _ process.Spec) {
		b.Append(id, process.Started{PID: 1}, process.Wrote{Stream: process.Stdout, Data: []byte("begin")})
		started <- id
	}
	killed := make(chan struct{})
	url := serve2(t, &killer{Gateway: b, killed: killed})
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+at+"/exec", strings.NewReader(`{"command":"sleep 100"}`))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	<-started
	cancel()
	<-killed
}

// killer reports when a process is killed.
type killer struct {
	*recordtest.Gateway
	killed chan struct{}
}

func (k *killer) Signal(_ context.Context, _ core.Principal, _ process.ID, sig int32) error {
	if sig == sigKill {
		close(k.killed)
	}
	return nil
}

func serve2(t *testing.T, k *killer) string {
	t.Helper()
	streams := stream.New(stream.Config{})
	h := New(Config{Sandboxes: places{"sbx_i1": {ID: "i1", Phase: sandbox.PhaseRunning}}, Commands: k, Logs: k, Files: noFiles{}, Streams: streams})
	return recordtest.Serve(t, streams, h.Register)
}

// E-105, E-106, E-120, E-127, E-131, E-142, E-144, AMB-11: what is refused.
func TestRefusals(t *testing.T) {
	url := serve(t, recordtest.New("i1"), nil)
	const (
		unknown = "/v1/sandboxes/sbx_nosuch"
		paused  = "/v1/sandboxes/sbx_paused"
	)
	for _, tt := range []struct {
		method, path, body string
		want               int
	}{
		{"POST", at + "/exec", "", 400}, {"POST", at + "/exec", "{}", 400}, {"POST", at + "/exec", `{"command":""}`, 400},
		{"POST", at + "/exec", `{"command":" \n"}`, 400}, {"POST", at + "/exec", `{"command":7}`, 400}, {"POST", at + "/exec", `{"command":"a\u0000b"}`, 400},
		{"POST", unknown + "/exec", `{"command":"x"}`, 404},
		{"POST", ended + "/exec", `{"command":"x"}`, 404}, {"POST", unknown + "/exec", "{}", 400},
		{"GET", unknown + "/logs", "", 404}, {"GET", ended + "/logs", "", 200}, {"GET", paused + "/logs", "", 200},
		{"GET", unknown + "/files?path=/a", "", 404}, {"GET", ended + "/files?path=/a", "", 404}, {"GET", at + "/files?path=/a", "", 404},
		{"POST", unknown + "/files?path=/a", "x", 404}, {"POST", ended + "/files?path=/a", "x", 404},
		{"POST", at + "/cancel", `{"reason":"zzz"}`, 400}, {"POST", at + "/cancel", `{"reason":""}`, 400}, {"POST", at + "/cancel", `[]`, 400},
		{"POST", unknown + "/cancel", "", 404}, {"POST", paused + "/cancel", "", 409}, {"POST", ended + "/cancel", "", 409},
	} {
		code, text := do(t, url, tt.method, tt.path, tt.body)
		var e struct{ Error, Message string }
		if err := json.Unmarshal([]byte(text), &e); code != tt.want || err != nil || code != 200 && (e.Error == "" || e.Message == "") {
			t.Errorf("%s %s %s: %d %s, want %d", tt.method, tt.path, tt.body, code, text, tt.want)
		}
	}
	// Another tenant's sandbox and none have the same response.
	for _, route := range []string{"/exec", "/cancel"} {
		_, foreign := do(t, url, "POST", at+route, `{"command":"x"}`, recordtest.HeaderTenant, "t2")
		if _, none := do(t, url, "POST", unknown+route, `{"command":"x"}`); foreign != none {
			t.Errorf("%s: %s and %s", route, foreign, none)
		}
	}
}

// E-126, E-129, E-130.
func TestPaths(t *testing.T) {
	url := serve(t, recordtest.New("i1"), nil)
	for query, want := range map[string]int{
		"": 400, "?path=": 400, "?path=a": 400, "?path=./a": 400, "?path=/a/../b": 400, "?path=/a/..": 400, "?path=/..": 400, "?path=/..%2fb": 400,
		"?path=%2fa%2f%2e%2e%2fb": 400, "?path=/%2e%2e": 400, "?path=/a&path=/b": 400, "?path=/a%00": 400, "?path=/" + strings.Repeat("x", 5000): 400,
		"?path=/a/..b": 404, "?path=/a/b..": 404, "?path=/...": 404, "?path=/%252e%252e/a": 404, "?path=/a%20b": 404,
	} {
		for method, body := range map[string]string{"GET": "", "POST": "x"} {
			if code, text := do(t, url, method, at+"/files"+query, body); code != want {
				t.Errorf("%s %.60s: %d %s, want %d", method, query, code, text, want)
			}
		}
	}
	if code, _ := do(t, url, "POST", at+"/files?path=/a", ""); code != 400 {
		t.Errorf("no body: %d", code)
	}
	if code, _ := do(t, url, "POST", at+"/files?path=/a", "x", "Content-Type", "multipart/form-data; boundary=b"); code != 400 {
		t.Errorf("a form: %d", code)
	}
	if err := uploadError(kind.New(kind.NotFound, "", "", "no such file or directory")); !kind.Is(err, kind.Invalid) {
		t.Errorf("no parent directory: %v", err)
	}
}

// E-110 to E-119.
func TestLogs(t *testing.T) {
	b := recordtest.New("i1", "i2")
	url := serve(t, b, nil)
	tag := AgentTag
	id := process.NewID("i1")
	var log strings.Builder
	b.Append(id, process.Accepted{Spec: process.Spec{Tag: &tag}}, process.Started{PID: 1})
	var offsets [process.PTY + 1]uint64
	for i := range 20_000 {
		w := process.Wrote{Stream: process.Stdout + process.Stream(i%2), Data: fmt.Appendf(nil, "line %d\n", i)}
		w.Offset = offsets[w.Stream]
		offsets[w.Stream] += uint64(len(w.Data))
		log.Write(w.Data)
		b.Append(id, w)
	}
	all := strings.SplitAfter(log.String(), "\n")
	last := func(n int) string { return strings.Join(all[len(all)-1-n:], "") }
	for query, want := range map[string]string{
		"": last(100), "?stream=stderr": last(100), "?lines=1": last(1), "?lines=007": last(7), "?lines=10000": last(10_000), "?lines=50000": last(10_000),
		"?lines=99999999999999999999999": last(10_000), "?bytes=10": "", "?bytes=11": last(1), "?bytes=20": last(1), "?bytes=22": last(2), "?bytes=9999999": log.String(),
	} {
		code, text := do(t, url, "GET", at+"/logs"+query, "")
		var got logged
		if err := json.Unmarshal([]byte(text), &got); err != nil || code != 200 || got.Content != want || got.Total != uint64(log.Len()) || got.Truncated != (want != log.String()) {
			t.Errorf("%s: %d, %d bytes %.30q, total %d, truncated %v; want %d bytes", query, code, len(got.Content), got.Content, got.Total, got.Truncated, len(want))
		}
	}
	for query, want := range map[string]int{
		"?stream=stdout": 501, "?stream=all": 501, "?stream=": 400, "?stream=zzz": 400, "?stream=stderr&stream=all": 400, "?stream=all&lines=0": 400,
		"?lines=1&bytes=1": 400, "?lines=0": 400, "?bytes=0": 400, "?bytes=000": 400, "?lines=-1": 400, "?lines=1.0": 400, "?lines=%2b1": 400, "?lines=": 400, "?bytes=x": 400, "?lines=1&lines=2": 400,
	} {
		if code, text := do(t, url, "GET", at+"/logs"+query, ""); code != want {
			t.Errorf("%s: %d %s, want %d", query, code, text, want)
		}
	}
	if code, text := do(t, url, "GET", "/v1/sandboxes/sbx_i2/logs", ""); code != 200 || text != `{"content":"","truncated":false,"total_bytes":0}` {
		t.Errorf("without an agent: %d %s", code, text)
	}
}

// E-135 to E-141.
func TestCancel(t *testing.T) {
	const spaces = " \n"
	clients := &attached{}
	url := serve(t, recordtest.New("i1"), clients)
	for body, want := range map[string]string{
		"": "user_request", spaces: "user_request", "{}": "user_request", `{"reason":null}`: "user_request", `{"reason":"credits_exhausted"}`: "credits_exhausted",
		`{"reason":"user_request"}`: "user_request", `{"reason":"admin_action"}`: "admin_action", `{"reason":"timeout"}`: "timeout",
	} {
		code, text := do(t, url, "POST", at+"/cancel", body)
		if code != 200 || text != `{"vm_id":"sbx_i1","cancelled":true,"reason":"`+want+`"}` || !slices.Contains(clients.reasons, want) {
			t.Errorf("%q: %d %s", body, code, text)
		}
	}
	if code, text := do(t, url, "POST", "/v1/sandboxes/sbx_i2/cancel", ""); code != 200 || text != `{"vm_id":"sbx_i2","cancelled":false,"reason":"user_request"}` {
		t.Errorf("without clients: %d %s", code, text)
	}
	if code, text := do(t, serve(t, recordtest.New("i1"), nil), "POST", at+"/cancel", ""); code != 200 || !strings.Contains(text, `"cancelled":false`) {
		t.Errorf("without conversations: %d %s", code, text)
	}
}
