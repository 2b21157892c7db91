package e2e_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/e2e/rig"
)

// TestWireControlPlaneIsPlainJSON covers N-001: create, timeout and delete are plain JSON.
func TestWireControlPlaneIsPlainJSON(t *testing.T) {
	a := api(t)
	var box rig.Sandbox
	ans := a.Want(t, http.StatusCreated, http.MethodPost, "/sandboxes", map[string]any{"templateID": "base", "timeout": 60})
	ans.Decode(t, &box)
	if ct := ans.Header.Get("Content-Type"); !strings.HasPrefix(ct, "application/json") || box.ID == "" || box.TemplateID != "base" || box.Version == "" {
		t.Errorf("%s %v", ct, ans)
	}
	end := func() time.Time {
		var d struct {
			EndAt time.Time `json:"endAt"`
			State string    `json:"state"`
		}
		a.Want(t, http.StatusOK, http.MethodGet, "/sandboxes/"+box.ID, nil).Decode(t, &d)
		return d.EndAt
	}
	was := end()
	if ans := a.Do(t, http.MethodPost, "/sandboxes/"+box.ID+"/timeout", map[string]any{"timeout": 600}); ans.Status != http.StatusNoContent {
		t.Errorf("timeout: %v", ans)
	}
	if is := end(); is.Sub(was) < 500*time.Second {
		t.Errorf("the end moved from %v to %v", was, is)
	}
	for i, want := range []int{http.StatusNoContent, http.StatusNotFound} {
		if ans := a.Do(t, http.MethodDelete, "/sandboxes/"+box.ID, nil); ans.Status != want {
			t.Errorf("delete %d: %v, want %d", i+1, ans, want)
		}
	}
	var e struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	}
	a.Do(t, http.MethodGet, "/sandboxes/"+box.ID, nil).Decode(t, &e)
	if e.Code != http.StatusNotFound || e.Message == "" {
		t.Errorf("get after delete: %+v", e)
	}
}

// TestWireHostNamesTheSandbox covers N-002: the data plane of a sandbox is its port 49983,
// selected by the host name.
func TestWireHostNamesTheSandbox(t *testing.T) {
	a := api(t)
	box := a.Create(t)
	msg := spec("/bin/echo", []string{"hello"})
	run := a.Dial(t, rig.Message("/process.Process/Start", msg, "Host", "49983-"+box.ID+".localhost")).All(t)
	if run.Stdout() != "hello\n" {
		t.Errorf("%q, %s", run.Stdout(), run.Last.Payload)
	}
	if ans := a.Do(t, http.MethodGet, "/health", nil, "Host", "49983-"+box.ID+".localhost"); ans.Status != http.StatusNoContent {
		t.Errorf("health: %v", ans)
	}
	if ans := a.Do(t, http.MethodGet, "/", nil, "Host", "8080-"+box.ID+".localhost"); ans.Status != http.StatusBadGateway || !bytes.Contains(ans.Body, []byte("port is not open")) {
		t.Errorf("another port: %v", ans)
	}
	a.Kill(t, box.ID)
	ans := a.Do(t, http.MethodGet, "/health", nil, "Host", "49983-"+box.ID+".localhost")
	if ans.Status != http.StatusBadGateway || !bytes.Contains(ans.Body, []byte(`"The sandbox was not found"`)) {
		t.Errorf("health of an ended sandbox: %v", ans)
	}
}

// TestWireBodyWithLengthOrChunked covers N-003: a request may have a content length or be
// chunked.
func TestWireBodyWithLengthOrChunked(t *testing.T) {
	a := api(t)
	box := a.Create(t)
	msg := rig.Message("/process.Process/Start", spec("/bin/echo", []string{"hello"}), "E2b-Sandbox-Id", box.ID)
	for _, chunked := range []bool{false, true} {
		msg.Chunked = chunked
		if run := a.Dial(t, msg).All(t); run.Stdout() != "hello\n" {
			t.Errorf("chunked %v: %q, %s", chunked, run.Stdout(), run.Last.Payload)
		}
	}
}

// TestWireConnectHeaders covers N-004: the Connect headers are optional, but another protocol
// version is rejected.
func TestWireConnectHeaders(t *testing.T) {
	a := api(t)
	box := a.Create(t)
	body := rig.Seal(0, []byte(`{"process":{"cmd":"/bin/echo","args":["hello"]},"stdin":false}`))
	for _, tt := range []struct {
		name    string
		headers []string
		ok      bool
	}{
		{"both", []string{"Connect-Protocol-Version", "1", "Connect-Content-Encoding", "identity"}, true},
		{"neither", nil, true},
		{"as the Python SDK", []string{"Connect-Protocol-Version", "1", "Connect-Content-Encoding", "identity",
			"Connect-Accept-Encoding", "identity", "User-Agent", "connectrpc/0.11.0"}, true},
		{"another version", []string{"Connect-Protocol-Version", "2"}, false},
	} {
		headers := append([]string{"Content-Type", "application/connect+json", "E2b-Sandbox-Id", box.ID}, tt.headers...)
		run := a.Dial(t, rig.Request{Path: "/process.Process/Start", Body: body, Headers: headers}).All(t)
		if ok := run.Stdout() == "hello\n"; ok != tt.ok || ok == (run.Error != nil) {
			t.Errorf("%s: %q, %s", tt.name, run.Stdout(), run.Last.Payload)
		}
	}
}

// TestWireMalformedEnvelopeIsRejected covers N-005: an envelope's header is a flag and a
// big-endian length (>BI). A malformed one is an error, and never a hang.
func TestWireMalformedEnvelopeIsRejected(t *testing.T) {
	a := api(t)
	box := a.Create(t)
	good := []byte(`{"process":{"cmd":"/bin/true"}}`)
	for _, tt := range []struct {
		name string
		body []byte
	}{
		{"no message", nil},
		{"a partial header", rig.Seal(0, good)[:3]},
		{"less than promised", rig.Seal(0, good)[:20]},
		{"more than the maximum", []byte{0, 0xff, 0xff, 0xff, 0xff, '{', '}'}},
		{"little endian", []byte{0, byte(len(good)), 0, 0, 0}},
		{"flags of no meaning", rig.Seal(0x80, good)},
		{"the end of the stream", rig.Seal(rig.FlagEnd, []byte("{}"))},
		{"two messages", append(rig.Seal(0, good), rig.Seal(0, good)...)},
	} {
		run := a.Dial(t, rig.Request{Path: "/process.Process/Start", Body: tt.body,
			Headers: []string{"Content-Type", "application/connect+json", "E2b-Sandbox-Id", box.ID}}).All(t)
		if run.Error == nil || run.Error.Code == "" || len(run.Messages) > 0 {
			t.Errorf("%s: %d messages, last %s", tt.name, len(run.Messages), run.Last.Payload)
		}
	}
}

// TestWireMessagesAreJSON covers N-006: all payloads are JSON; messages have the flag 0, and
// the last envelope has 2.
func TestWireMessagesAreJSON(t *testing.T) {
	a := api(t)
	run := a.StartStream(t, a.Create(t).ID, "echo x").All(t)
	for _, m := range run.Messages {
		if m.Flags != 0 || !json.Valid(m.Payload) {
			t.Errorf("%#x %s", m.Flags, m.Payload)
		}
	}
	if run.Last.Flags != 2 || !json.Valid(run.Last.Payload) {
		t.Errorf("last: %#x %s", run.Last.Flags, run.Last.Payload)
	}
}

// TestWireCommandRunsAsRequested covers N-007: argv, environment, directory and a closed stdin
// are as requested.
func TestWireCommandRunsAsRequested(t *testing.T) {
	a := api(t)
	box := a.Create(t, "envVars", map[string]string{"FROM_SANDBOX": "s", "BOTH": "sandbox"})
	home := strings.TrimSpace(a.StartStream(t, box.ID, `echo "$HOME"`).All(t).Stdout())
	run := a.StartSpec(t, box.ID, map[string]any{
		"process": map[string]any{
			"cmd": "/bin/bash", "args": []string{"-l", "-c", `pwd; echo "$A|$FROM_SANDBOX|$BOTH|$0|$1"; cat; echo "cat: $?"`, "zero", "o n'e"},
			"envs": map[string]string{"A": "ä b\n", "BOTH": "process"}, "cwd": home,
		},
		"stdin": false,
	}).All(t)
	if want := home + "\nä b\n|s|process|zero|o n'e\ncat: 0\n"; run.Stdout() != want {
		t.Errorf("%q, want %q (%s)", run.Stdout(), want, run.Last.Payload)
	}
	if run := a.StartStream(t, box.ID, "env").All(t); strings.Contains(run.Stdout(), "MILLRACE_API_KEY") || strings.Contains(run.Stdout(), "GOTRACEBACK") {
		t.Errorf("the host's environment is in the sandbox: %q", run.Stdout())
	}
}

// TestWireFirstMessageIsStart covers N-008: the first message is start, with the pid and the
// process id.
func TestWireFirstMessageIsStart(t *testing.T) {
	a := api(t)
	run := a.StartStream(t, a.Create(t).ID, "true").All(t)
	if first := run.Messages[0]; first.Event.Start == nil || first.Event.Start.PID == 0 || run.Process == "" {
		t.Errorf("first: %s", first.Payload)
	}
}

// TestWireOutputIsBase64 covers N-009: output is base64.
func TestWireOutputIsBase64(t *testing.T) {
	a := api(t)
	run := a.StartStream(t, a.Create(t).ID, "printf 'hello\\n'").All(t)
	if want := `"stdout":"` + base64.StdEncoding.EncodeToString([]byte("hello\n")) + `"`; !bytes.Contains(run.Messages[1].Payload, []byte(want)) {
		t.Errorf("%s, want %s", run.Messages[1].Payload, want)
	}
}

// TestWireExitCodeHasOneName covers N-010: the end event has the exit code once, as exitCode,
// or as exit_code with names=proto.
func TestWireExitCodeHasOneName(t *testing.T) {
	a := api(t)
	box := a.Create(t)
	last := lastEvent(a.StartStream(t, box.ID, "exit 3").All(t))
	if !strings.Contains(last, `"exitCode":3`) || strings.Contains(last, "exit_code") || !strings.Contains(last, `"exited":true`) {
		t.Errorf("end: %s", last)
	}
	msg := rig.Message("/process.Process/Start?names=proto", spec("/bin/false", nil), "E2b-Sandbox-Id", box.ID)
	last = lastEvent(a.Dial(t, msg).All(t))
	if !strings.Contains(last, `"exit_code":1`) || strings.Contains(last, "exitCode") {
		t.Errorf("end with names=proto: %s", last)
	}
}

// TestWireFilesAreWrittenAndRead covers N-011: a written file can be read back.
func TestWireFilesAreWrittenAndRead(t *testing.T) {
	a := api(t)
	box := a.Create(t)
	data := append([]byte("hello\n"), allBytes()...)
	ans := a.RPC(t, box.ID, "/filesystem.Filesystem/Write", map[string]any{"path": "/tmp/written", "data": data})
	var res struct {
		Entry struct{ Name, Path, Type, Size string } `json:"entry"`
	}
	if ans.Status != http.StatusOK || ans.Header.Get("Content-Type") != "application/json" {
		t.Fatalf("Write: %v", ans)
	}
	ans.Decode(t, &res)
	if res.Entry.Name != "written" || res.Entry.Path != "/tmp/written" || res.Entry.Size != "262" {
		t.Errorf("Write: %v", ans)
	}
	if run := a.StartSpec(t, box.ID, spec("/bin/cat", []string{"/tmp/written"})).All(t); !bytes.Equal(run.Out["stdout"], data) {
		t.Errorf("read back %x", run.Out["stdout"])
	}
	if ans := a.RPC(t, box.ID, "/filesystem.Filesystem/Stat", map[string]any{"path": "/tmp/written"}); ans.Status != http.StatusOK || !bytes.Contains(ans.Body, []byte(`"262"`)) {
		t.Errorf("Stat: %v", ans)
	}
	wantCode(t, "Stat of nothing", a.RPC(t, box.ID, "/filesystem.Filesystem/Stat", map[string]any{"path": "/tmp/none"}), http.StatusNotFound, "not_found")
}

// TestWireMessagesMatchTheSchema covers N-012: code generated from process.proto and the
// released SDK accept the messages.
func TestWireMessagesMatchTheSchema(t *testing.T) {
	a := api(t)
	t.Run("connect-go", func(t *testing.T) { connectGo(t, a, a.Create(t).ID, false) })
	t.Run("e2b", func(t *testing.T) { runNode(t, a, "smoke.mjs", "e2b") })
}

// TestWireStreamContentType covers N-013: streams, also of errors, are
// application/connect+json.
func TestWireStreamContentType(t *testing.T) {
	a := api(t)
	box := a.Create(t)
	r := a.StartStream(t, box.ID, "true")
	if ct := r.Header.Get("Content-Type"); ct != "application/connect+json" {
		t.Errorf("content type %q", ct)
	}
	r.All(t)
	if ct := a.ConnectTo(t, box.ID, 4194301).Header.Get("Content-Type"); ct != "application/connect+json" {
		t.Errorf("content type of an error %q", ct)
	}
}

// TestWireUnknownContentTypeIs415 covers N-014: an unknown content type is rejected with 415.
func TestWireUnknownContentTypeIs415(t *testing.T) {
	a := api(t)
	box := a.Create(t)
	for _, m := range []string{"Start", "Connect"} {
		for _, ct := range []string{"text/plain", "application/grpc", "application/connect+cbor", ""} {
			r := a.Dial(t, rig.Request{Path: "/process.Process/" + m, Body: rig.Seal(0, []byte("{}")),
				Headers: []string{"Content-Type", ct, "E2b-Sandbox-Id", box.ID}})
			if r.Status != http.StatusUnsupportedMediaType {
				t.Errorf("%s as %q: %d", m, ct, r.Status)
			}
		}
	}
	if ans := a.RPC(t, box.ID, "/process.Process/List", struct{}{}, "Content-Type", "text/plain"); ans.Status != http.StatusUnsupportedMediaType {
		t.Errorf("List as text/plain: %v", ans)
	}
}
