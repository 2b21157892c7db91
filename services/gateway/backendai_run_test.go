package gateway_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	fws "github.com/fasthttp/websocket"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway"
)

// scripted makes the host's kernels ready. The code of a query is what its process prints, and a
// batch prints its commands. A process whose output contains the end of its run ends; another one
// prints its input.
func (f *fixture) scripted() {
	f.host.Script = func(spec *process.Spec) (out string, ends, ok bool) {
		if spec.Tag != nil && strings.HasPrefix(*spec.Tag, "context:") {
			return "ready\n", false, true
		}
		var r struct{ Code, Clean, Build, Exec string }
		if len(spec.Args) < 7 || json.Unmarshal([]byte(strings.Join(spec.Args[6:], "")), &r) != nil {
			return "", false, false
		}
		if strings.Contains(r.Code, "compgen") {
			return `{"type":"stdout","text":"awk\nalias\n"}` + "\n" + fmt.Sprintf(ended, 0), true, true
		}
		out = r.Code + r.Clean + r.Build + r.Exec
		return out, strings.Contains(out, "end_of_execution"), true
	}
}

const (
	wrote = `{"type":"stdout","text":"%s"}` + "\n"
	asks  = `{"type":"input","password":true}` + "\n"
	ended = `{"type":"end_of_execution","code":%d}` + "\n"
)

// result is the next result of a run.
type result struct {
	Status   string
	RunID    string
	ExitCode *int
	Options  map[string]any
	Files    []any
	Console  [][2]string
	Msg      string
}

// brief returns the status, the exit code and the console.
func (r *result) brief() string {
	s := r.Status
	if r.ExitCode != nil {
		s += fmt.Sprintf(" %d", *r.ExitCode)
	}
	for _, i := range r.Console {
		s += " " + i[0] + "=" + i[1]
	}
	return s
}

// execute sends a request about a run and returns its next result.
func (s *signer) execute(path, mode, code, runID string, options any) result {
	s.t.Helper()
	body, err := json.Marshal(map[string]any{"mode": mode, "code": code, "runId": runID, "options": options})
	if err != nil {
		s.t.Fatal(err)
	}
	a := s.do("POST", path, string(body))
	var r struct{ Result result }
	if err := json.Unmarshal([]byte(a.body), &r); err != nil || a.code != 200 || r.Result.Console == nil || r.Result.Files == nil || r.Result.RunID == "" {
		s.t.Fatalf("%s %q: %d %s", mode, code, a.code, a.body)
	}
	return r.Result
}

// twoGateways returns fixtures of two gateways with one log and host.
func twoGateways(t *testing.T) (first, second *fixture) {
	t.Helper()
	f := newFixture(t)
	g := *f
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g.serve(gateway.Config{Listener: ln})
	return f, &g
}

// B-003, B-025, B-026, B-027, B-028: runs by long polls. Any gateway continues a run, and each
// result is delivered once.
func TestBackendAIRuns(t *testing.T) {
	f, g := twoGateways(t)
	f.scripted()
	one, two := f.signer(), g.signer()
	one.create("/session", `{"image":"base","name":"runs"}`, 201)
	const at = "/kernel/runs"
	end := func(code int) string { return fmt.Sprintf(ended, code) }
	out := func(text string) string { return fmt.Sprintf(wrote, text) }

	r := one.execute(at, "query", out("a")+out("b")+end(0), "", nil)
	if got := r.brief(); got != "finished 0 stdout=ab" {
		t.Errorf("query: %s", got)
	}
	r = two.execute(at, "continue", "", r.RunID, nil)
	if got := r.brief(); got != "finished 0" {
		t.Errorf("continued after the end: %s", got)
	}

	r = one.execute(at, "query", out("name? ")+asks, "mine", nil)
	if got := r.brief(); got != "waiting-input stdout=name? " || r.Options["is_password"] != true || r.RunID != "mine" {
		t.Errorf("input: %s %+v", got, r)
	}
	r = two.execute(at, "input", strings.TrimSpace(out("hello")), "mine", nil)
	if got := r.brief(); got != "continued stdout=hello" {
		t.Errorf("after the input: %s", got)
	}
	r = one.execute(at, "input", strings.TrimSpace(end(7)), "mine", nil)
	if got := r.brief(); got != "finished 7" {
		t.Errorf("after the last input: %s", got)
	}

	batch := map[string]any{
		"clean": `{"type":"step","name":"clean","code":0}` + "\n", "build": out("b") + `{"type":"step","name":"build","code":1}` + "\n", "exec": end(127),
	}
	r = one.execute(at, "batch", "", "batch", batch)
	got := []string{r.brief()}
	for i := range 2 {
		r = []*signer{two, one}[i].execute(at, "continue", "", "batch", nil)
		got = append(got, r.brief())
	}
	if want := []string{"clean-finished 0", "build-finished 1 stdout=b", "finished 127"}; !slices.Equal(got, want) {
		t.Errorf("batch: %q, want %q", got, want)
	}

	var info struct{ NumQueriesExecuted int }
	if a := two.do("GET", "/session/runs", ""); json.Unmarshal([]byte(a.body), &info) != nil || info.NumQueriesExecuted != 3 {
		t.Errorf("info: %s", a.body)
	}
	if a := two.do("GET", "/session/runs/logs", ""); a.code != 200 || !strings.Contains(a.body, `abname? hello`) {
		t.Errorf("logs: %d %s", a.code, a.body)
	}
	if a := one.do("POST", "/session/runs/complete", `{"code":"a","options":{"row":0,"col":1}}`); a.code != 200 || !strings.Contains(a.body, `"completions":["awk","alias"]`) {
		t.Errorf("complete: %d %s", a.code, a.body)
	}
	for _, body := range []string{`[]`, `{"code":1}`, `{"options":{"row":"x"}}`, `{"options":"x"}`} {
		one.do("POST", "/session/runs/complete", body).problem(t, "complete "+body, 400, "invalid-api-params")
	}
}

// B-025, B-031: an interrupt ends a run that prints nothing with 130.
func TestBackendAIInterrupt(t *testing.T) {
	f := newFixture(t)
	f.scripted()
	s := f.signer()
	s.create("/session", `{"image":"python:3.8","name":"runs"}`, 201)
	begin := time.Now()
	r := s.execute("/session/runs", "query", "", "", nil)
	if got := r.brief(); got != "continued" || time.Since(begin) < 1900*time.Millisecond {
		t.Errorf("%s after %v", got, time.Since(begin))
	}
	s.do("POST", "/session/runs/interrupt", "").want(t, "interrupt", 204, "")
	r = s.execute("/session/runs", "continue", "", r.RunID, nil)
	if got := r.brief(); got != "finished 130" {
		t.Errorf("interrupted: %s", got)
	}
}

// Requests that are not valid.
func TestBackendAIRunsRejected(t *testing.T) {
	f := newFixture(t)
	s := f.signer()
	s.create("/session", `{"image":"base","name":"runs"}`, 201)
	for _, body := range []string{
		``, `[]`, `{}`, `{"mode":1}`, `{"mode":"x"}`, `{"mode":"query","code":1}`, `{"mode":"continue"}`, `{"mode":"input","code":"x","runId":null}`,
		`{"mode":"batch","options":"x"}`, `{"mode":"batch","options":{"build":1}}`, `{"mode":"query","runId":"a b"}`,
	} {
		s.do("POST", "/session/runs", body).problem(t, body, 400, "invalid-api-params")
	}
	s.do("POST", "/session/runs", `{"mode":"continue","runId":"unknown"}`).problem(t, "unknown run", 404, "object-not-found")
	s.do("POST", "/session/none", `{"mode":"query","code":"x"}`).problem(t, "unknown session", 404, "object-not-found")
}

// dial opens a signed WebSocket connection.
func (s *signer) dial(path string) (*fws.Conn, *http.Response, error) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), "GET", "http://"+s.addr+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	s.noContentType = true // B-023: SDKs send none
	s.sign(req)
	return fws.DefaultDialer.Dial("ws://"+s.addr+path, req.Header)
}

func (s *signer) mustDial(path, first string) *fws.Conn {
	s.t.Helper()
	ws, resp, err := s.dial(path)
	if err != nil {
		s.t.Fatalf("%s: %v, %v", path, err, resp)
	}
	s.t.Cleanup(func() { ws.Close() })
	ws.SetReadDeadline(time.Now().Add(time.Minute))
	if err := ws.WriteMessage(fws.TextMessage, []byte(first)); err != nil {
		s.t.Fatal(err)
	}
	return ws
}

// next returns the next result on a connection, or the text of the close frame.
func next(t *testing.T, ws *fws.Conn) (result, string) {
	t.Helper()
	kind, raw, err := ws.ReadMessage()
	if err != nil {
		return result{}, err.Error()
	}
	var r result
	if err := json.Unmarshal(raw, &r); err != nil || kind != fws.TextMessage {
		t.Fatalf("%d %s: %v", kind, raw, err)
	}
	return r, ""
}

// skipIdle returns the next result that is not one without news.
func skipIdle(t *testing.T, ws *fws.Conn) (result, string) {
	t.Helper()
	for {
		if r, closed := next(t, ws); closed != "" || r.brief() != "continued" {
			return r, closed
		}
	}
}

// B-001, B-002, B-003, B-028: runs on a WebSocket connection.
func TestBackendAIStreamedRuns(t *testing.T) {
	f := newFixture(t)
	f.scripted()
	s := f.signer()
	id := s.create("/session", `{"image":"base","name":"runs"}`, 201).SessionID
	query := func(code string) string {
		raw, _ := json.Marshal(map[string]any{"mode": "query", "code": code, "options": nil})
		return string(raw)
	}
	for _, path := range []string{"/stream/session/runs/execute", "/stream/kernel/" + id + "/execute", "/v4/stream/kernel/runs/execute"} {
		ws := s.mustDial(path, query(fmt.Sprintf(wrote, "hello")+fmt.Sprintf(ended, 0)))
		r, _ := skipIdle(t, ws)
		if got := r.brief(); got != "finished 0 stdout=hello" {
			t.Errorf("%s: %s", path, got)
		}
		if _, closed := next(t, ws); !strings.Contains(closed, "close 1000") {
			t.Errorf("%s: after the end %s", path, closed)
		}
	}
	ws := s.mustDial("/stream/session/runs/execute", query(fmt.Sprintf(wrote, "a")+asks))
	for _, step := range []struct{ want, input string }{
		{"waiting-input stdout=a", strings.TrimSpace(fmt.Sprintf(wrote, "b") + asks)},
		{"waiting-input stdout=b", strings.TrimSpace(fmt.Sprintf(ended, 3))},
		{"finished 3", ""},
	} {
		if r, closed := skipIdle(t, ws); r.brief() != step.want {
			t.Fatalf("%s %s, want %s", r.brief(), closed, step.want)
		}
		if step.input != "" {
			if err := ws.WriteMessage(fws.TextMessage, []byte(step.input)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for first, want := range map[string]string{`x`: "error", `{"mode":"continue"}`: "error", `{"mode":"query","code":5}`: "error"} {
		ws := s.mustDial("/stream/session/runs/execute", first)
		if r, _ := next(t, ws); r.Status != want || r.Msg == "" {
			t.Errorf("%s: %+v", first, r)
		}
	}
	if _, resp, err := s.dial("/stream/session/none/execute"); err == nil || resp == nil || resp.StatusCode != 404 {
		t.Errorf("an unknown session: %v, %v", resp, err)
	}
	bad := *s
	bad.key = "AKIA"
	if _, resp, err := bad.dial("/stream/session/runs/execute"); err == nil || resp == nil || resp.StatusCode != 401 {
		t.Errorf("an unknown key: %v, %v", resp, err)
	}
}

// B-029: a client that leaves interrupts its run; a gateway that drains does not.
func TestBackendAIAbandonedRuns(t *testing.T) {
	f, g := twoGateways(t)
	f.scripted()
	f.signer().create("/session", `{"image":"base","name":"runs"}`, 201)
	const started = `{"mode":"query","code":"{\"type\":\"stdout\",\"text\":\"a\"}\n"}`
	run := func(tag string) process.Summary {
		t.Helper()
		all := f.view.Processes("", func(s *process.Summary) bool { return s.Spec.Tag != nil && strings.HasPrefix(*s.Spec.Tag, "run:") })
		if len(all) == 0 {
			t.Fatalf("%s: no run", tag)
		}
		return all[len(all)-1]
	}
	ws := f.signer().mustDial("/stream/session/runs/execute", started)
	if r, closed := skipIdle(t, ws); r.brief() != "continued stdout=a" {
		t.Fatalf("%s %s", r.brief(), closed)
	}
	ws.Close()
	poll, late := time.NewTicker(10*time.Millisecond), time.After(time.Minute)
	defer poll.Stop()
	for left := run("abandoned"); left.Active(); left = run("abandoned") {
		select {
		case <-poll.C:
		case <-late:
			t.Fatal("the run of a client that left goes on")
		}
	}
	if x := run("abandoned").Exit; x.Signal != 2 {
		t.Errorf("ended by %+v", x)
	}

	ws = g.signer().mustDial("/stream/session/runs/execute", started)
	if r, closed := skipIdle(t, ws); r.brief() != "continued stdout=a" {
		t.Fatalf("%s %s", r.brief(), closed)
	}
	drained := make(chan error, 1)
	go func() { drained <- g.stop() }()
	r, _ := skipIdle(t, ws)
	if _, closed := next(t, ws); r.Status != "server-restarting" || !strings.Contains(closed, "close 1001") {
		t.Errorf("drain: %+v, then %s", r, closed)
	}
	ws.Close()
	if err := <-drained; err != nil {
		t.Error(err)
	}
	if left := run("drained"); !left.Active() {
		t.Errorf("a drain ended the run: %+v", left.Exit)
	}
}
