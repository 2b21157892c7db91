package connect

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	pb "github.com/millrace/millrace/schema/process"
	"github.com/millrace/millrace/services/gateway/internal/surfacetest"
)

var pipes = process.Spec{Cmd: "x"}

func recordOf(bodies ...process.Body) *surfacetest.Record {
	return surfacetest.NewRecord("script", pipes, bodies...)
}

const run = `{"process":{"cmd":"/bin/bash","args":["-l","-c","x"],"envs":{"A":"b"},"cwd":"/home/user"},"stdin":false}`

const (
	startLine = `{"event":{"start":{"pid":4711}},"process":"01jz0000000000000000000000-isurfacetest0000000001","seq":2}`
	endLine   = `"exited":true,"status":"","error":""}}`
)

func same(t *testing.T, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestStartMatchesE2BsWireFormat covers C-015.
func TestStartMatchesE2BsWireFormat(t *testing.T) {
	s := serve(t, newFake(recordOf(surfacetest.Out("hello\n"), surfacetest.Err("oops\n"), surfacetest.Code(0))), Config{})
	r := s.stream(t, "Start", run)
	same(t, r.lines(t), []string{
		startLine,
		`{"event":{"data":{"stdout":"aGVsbG8K"}},"seq":3}`,
		`{"event":{"data":{"stderr":"b29wcwo="}},"seq":4}`,
		`{"event":{"end":{"exitCode":0,` + endLine + `,"seq":5}`,
		`END {}`,
	})
	if r.status != 200 || r.header.Get("Content-Type") != "application/connect+json" || r.header.Get("X-Process-Id") != string(surfacetest.ID) {
		t.Errorf("status %d, head %v", r.status, r.header)
	}
}

// TestStartPassesTheRequestedSpec covers N-007.
func TestStartPassesTheRequestedSpec(t *testing.T) {
	tag := "t"
	for _, tt := range []struct {
		name, msg string
		headers   []string
		want      process.Spec
	}{
		{"an SDK's run", run, []string{"Connect-Timeout-Ms: 60000", "Authorization: Basic dXNlcjo="},
			process.Spec{Cmd: "/bin/bash", Args: []string{"-l", "-c", "x"}, Env: map[string]string{"A": "b"}, Cwd: "/home/user", User: "user", Timeout: time.Minute}},
		{"stdin is open by default", `{"process":{"cmd":"cat"}}`, nil, process.Spec{Cmd: "cat", Stdin: true}},
		{"a terminal", `{"process":{"cmd":"sh"},"pty":{"size":{"cols":10,"rows":20}},"tag":"t"}`, nil,
			process.Spec{Cmd: "sh", Stdin: true, PTY: &process.Size{Cols: 10, Rows: 20}, Tag: &tag}},
		{"a terminal without a size", `{"process":{"cmd":"sh"},"pty":{}}`, nil,
			process.Spec{Cmd: "sh", Stdin: true, PTY: &process.Size{Cols: 80, Rows: 24}}},
		{"whitespace and unknown fields", "{\n \"process\" : {\"cmd\": \"x\", \"new\": [1]},\n \"stdin\": false }", nil, process.Spec{Cmd: "x"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := serve(t, newFake(recordOf(surfacetest.Code(0))), Config{})
			s.stream(t, "Start", tt.msg, tt.headers...)
			if len(s.started) != 1 || string(process.AppendSpec(nil, &s.started[0])) != string(process.AppendSpec(nil, &tt.want)) {
				t.Errorf("got %+v, want %+v", s.started, tt.want)
			}
		})
	}
}

// TestStreamsAcceptEnvelopedAndPlainBodies covers C-003.
func TestStreamsAcceptEnvelopedAndPlainBodies(t *testing.T) {
	raw, err := proto.Marshal(&pb.StartRequest{Process: &pb.ProcessConfig{Cmd: "x"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ contentType, body, answers string }{
		{typeStreamJSON, envelope(0, run), typeStreamJSON},
		{typeJSON, run, typeStreamJSON},
		{"application/json; charset=utf-8", run, typeStreamJSON},
		{typeStreamProto, envelope(0, string(raw)), typeStreamProto},
		{typeProto, string(raw), typeStreamProto},
	} {
		t.Run(tt.contentType, func(t *testing.T) {
			s := serve(t, newFake(recordOf(surfacetest.Code(0))), Config{})
			r := s.post(t, processService+"Start", tt.contentType, tt.body)
			if got := r.lines(t); len(got) != 3 || got[2] != "END {}" || r.header.Get("Content-Type") != tt.answers {
				t.Errorf("got %q as %s", got, r.header.Get("Content-Type"))
			}
		})
	}
}

// TestEachKindOfExitHasItsEndEvent covers C-016.
func TestEachKindOfExitHasItsEndEvent(t *testing.T) {
	two := int32(2)
	for _, tt := range []struct {
		name string
		exit process.Exit
		want []string
	}{
		{"a code", process.Exit{Code: &two, Cause: process.CauseExited},
			[]string{`{"event":{"end":{"exitCode":2,"exited":true,"status":"exit status 2","error":"exit status 2"}},"seq":3}`, `END {}`}},
		{"killed", process.Exit{Signal: 9, Cause: process.CauseKilled},
			[]string{`{"event":{"end":{"exitCode":-1,"exited":false,"status":"signal: killed","error":"signal: killed"}},"seq":3}`, `END {}`}},
		{"a crash", process.Exit{Signal: 11, Cause: process.CauseSignaled},
			[]string{`{"event":{"end":{"exitCode":-1,"exited":false,"status":"signal: segmentation fault","error":"signal: segmentation fault"}},"seq":3}`, `END {}`}},
		{"out of memory", process.Exit{Signal: 9, Cause: process.CauseOOM},
			[]string{`{"event":{"end":{"exitCode":-1,"exited":false,"status":"signal: killed","error":"signal: killed (out of memory)"}},"seq":3}`, `END {}`}},
		{"timeout", process.Exit{Signal: 9, Cause: process.CauseTimeout},
			[]string{`END {"error":{"code":"deadline_exceeded","message":"the process ran into its timeout"}}`}},
		{"lost", process.Exit{Cause: process.CauseHostLost, Message: "its host fell silent"},
			[]string{`END {"error":{"code":"data_loss","message":"the process was lost; its exit is unknown: its host fell silent"},"metadata":{"x-end-cause":["host_lost"]}}`}},
		{"with its sandbox", process.Exit{Signal: 9, Cause: process.CauseSandboxGone},
			[]string{`END {"error":{"code":"unavailable","message":"the sandbox was killed or reached its end of life while the process ran"},"metadata":{"x-end-cause":["sandbox_gone"]}}`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := serve(t, newFake(recordOf(process.Finished{Exit: tt.exit})), Config{})
			r := s.stream(t, "Start", run)
			same(t, r.lines(t), append([]string{startLine}, tt.want...))
		})
	}
}

// TestSnakeCaseNamesOnRequest covers N-010.
func TestSnakeCaseNamesOnRequest(t *testing.T) {
	s := serve(t, newFake(recordOf(surfacetest.Code(0))), Config{})
	r := s.post(t, processService+"Start?names=proto", typeStreamJSON, envelope(0, run))
	if !strings.Contains(r.body, `"exit_code":0`) || strings.Contains(r.body, "exitCode") {
		t.Errorf("got %q", r.body)
	}
}

// TestFailuresAreReportedInTheStream covers C-008.
func TestFailuresAreReportedInTheStream(t *testing.T) {
	gone := recordOf(process.Failed{Kind: uint32(kind.Invalid), Message: "cwd '/nope' does not exist"}, surfacetest.Unseen(process.CauseNotStarted))
	for _, tt := range []struct {
		name    string
		script  *surfacetest.Record
		err     error
		body    string
		headers []string
		want    string
	}{
		{name: "no such cwd", script: gone, want: `{"error":{"code":"invalid_argument","message":"cwd '/nope' does not exist"}}`},
		{name: "another command with the key", err: kind.New(kind.Conflict, "", "", "used"), want: `{"error":{"code":"already_exists","message":"used"}}`},
		{name: "no host", err: kind.New(kind.Unavailable, "", "", "no host"), want: `{"error":{"code":"unavailable","message":"no host"}}`},
		{name: "an internal error hides its cause", err: kind.Wrap(kind.Internal, "", "", kind.New(kind.Invalid, "", "", "secret")), want: `{"error":{"code":"internal","message":"internal"}}`},
		{name: "invalid JSON", body: envelope(0, "{"), want: `{"error":{"code":"invalid_argument","message":"unmarshal`},
		{name: "C-006 compressed without a name", body: envelope(1, run), want: `{"error":{"code":"internal","message":"protocol error: sent compressed message without compression support"}}`},
		{name: "invalid flags", body: envelope(0xf8, run), want: `{"error":{"code":"invalid_argument","message":"protocol error: invalid envelope flags 0xf8"}}`},
		{name: "a length beyond the limit", body: "\x00\xff\xff\xff\xff", want: `{"error":{"code":"resource_exhausted"`},
		{name: "a message cut short", body: envelope(0, run)[:50], want: `{"error":{"code":"invalid_argument","message":"protocol error: promised`},
		{name: "an incomplete head", body: "\x00\x00", want: `{"error":{"code":"invalid_argument","message":"protocol error: incomplete envelope`},
		{name: "nothing", body: " "[:0], want: ``},
		{name: "two messages", body: envelope(0, run) + envelope(0, run), want: `{"error":{"code":"unimplemented","message":"unary request has multiple messages"}}`},
		{name: "an unknown encoding", headers: []string{"Connect-Content-Encoding: br"}, want: `{"error":{"code":"unimplemented","message":"unknown compression \"br\"`},
		{name: "another version", headers: []string{"Connect-Protocol-Version: 2"}, want: `{"error":{"code":"invalid_argument","message":"Connect-Protocol-Version must be \"1\": got \"2\""}}`},
		{name: "an invalid timeout", headers: []string{"Connect-Timeout-Ms: -1"}, want: `{"error":{"code":"invalid_argument","message":"protocol error: invalid Connect-Timeout-Ms \"-1\""}}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFake(recordOf(surfacetest.Code(0)))
			if f.startErr = tt.err; tt.script != nil {
				f.script = tt.script
			}
			s := serve(t, f, Config{})
			body := tt.body
			if body == "" && tt.want != "" {
				body = envelope(0, run)
			}
			r := s.post(t, processService+"Start", typeStreamJSON, body, tt.headers...)
			got := r.lines(t)
			if len(got) != 1 || !strings.HasPrefix(got[0], "END "+strings.TrimSuffix(tt.want, "}}")) || r.status != 200 {
				t.Errorf("got %q with status %d, want one END %s", got, r.status, tt.want)
			}
		})
	}
}

// TestWrongContentTypesAre415 covers N-014.
func TestWrongContentTypesAre415(t *testing.T) {
	s := serve(t, newFake(recordOf(surfacetest.Code(0))), Config{})
	for _, tt := range []struct{ method, contentType string }{
		{"Start", "text/plain"}, {"Start", "application/grpc"}, {"Start", ""}, {"Connect", "application/connect+xml"},
		{"List", "application/connect+json"}, {"List", "text/json"}, {"StreamInput", "application/json"},
	} {
		t.Run(tt.method+" "+tt.contentType, func(t *testing.T) {
			r := s.post(t, processService+tt.method, tt.contentType, run)
			if r.status != 415 || r.header.Get("Accept-Post") == "" {
				t.Errorf("status %d, head %v", r.status, r.header)
			}
		})
	}
}

func TestStoppedSandboxesAreBadGateways(t *testing.T) {
	for _, tt := range []struct {
		method, msg string
	}{
		{"Start", run}, {"Connect", `{"process":{"pid":1}}`}, {"List", `{}`}, {"SendSignal", `{"process":{"pid":1},"signal":9}`},
		{"SendInput", `{"process":{"pid":1},"input":{"stdin":"YQ=="}}`}, {"Update", `{"process":{"pid":1}}`}, {"CloseStdin", `{"process":{"pid":1}}`},
	} {
		for _, sbx := range []string{string(dead), string(unknown), "NO-SUCH"} {
			t.Run(tt.method+" "+sbx, func(t *testing.T) {
				s := serve(t, newFake(recordOf(surfacetest.Code(0))), Config{})
				r := s.unary(t, tt.method, tt.msg, "E2b-Sandbox-Id: "+sbx)
				want := `{"sandboxId":"` + sbx + `","message":"The sandbox was not found","code":502}`
				if r.status != 502 || r.body != want || r.header.Get("Content-Type") != "application/json; charset=utf-8" {
					t.Errorf("got %d %s %v, want 502 %s", r.status, r.body, r.header, want)
				}
			})
		}
	}
}
