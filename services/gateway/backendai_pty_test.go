package gateway_test

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"

	fws "github.com/fasthttp/websocket"

	"github.com/millrace/millrace/events/process"
)

// view is a viewer of a terminal.
type view struct {
	t  *testing.T
	ws *fws.Conn
}

func (s *signer) view(path string) *view {
	s.t.Helper()
	ws, resp, err := s.dial(path)
	if err != nil {
		s.t.Fatalf("%s: %v, %v", path, err, resp)
	}
	s.t.Cleanup(func() { ws.Close() })
	ws.SetReadDeadline(time.Now().Add(time.Minute))
	return &view{s.t, ws}
}

func (v *view) send(kind int, raw string) {
	v.t.Helper()
	if err := v.ws.WriteMessage(kind, []byte(raw)); err != nil {
		v.t.Fatal(err)
	}
}

func (v *view) stdin(text string) {
	v.t.Helper()
	v.send(fws.TextMessage, `{"type":"stdin","chars":"`+base64.StdEncoding.EncodeToString([]byte(text))+`"}`)
}

// until returns the output up to one that ends with a text. Errors are output with a mark.
func (v *view) until(end string) string {
	v.t.Helper()
	var got strings.Builder
	for !strings.HasSuffix(got.String(), end) {
		kind, raw, err := v.ws.ReadMessage()
		if err != nil {
			v.t.Fatalf("%v after %q, want %q", err, got.String(), end)
		}
		var m struct{ Type, Data string }
		if err := json.Unmarshal(raw, &m); err != nil || kind != fws.TextMessage {
			v.t.Fatalf("message %d %s: %v", kind, raw, err)
		}
		switch m.Type {
		case "out":
			data, err := base64.StdEncoding.DecodeString(m.Data)
			if err != nil {
				v.t.Fatalf("%s: %v", raw, err)
			}
			got.Write(data)
		case "error":
			got.WriteString("!")
		}
	}
	return got.String()
}

// closed returns the text of the close frame.
func (v *view) closed() string {
	for {
		if _, _, err := v.ws.ReadMessage(); err != nil {
			return err.Error()
		}
	}
}

// withShells makes the host's terminals print a prompt and what they read.
func (f *fixture) withShells() {
	f.host.Script = func(spec *process.Spec) (out string, ends, ok bool) { return "$ ", false, spec.PTY != nil }
}

func (f *fixture) terminals() []process.Summary {
	return f.view.Processes("", func(s *process.Summary) bool { return s.Spec.PTY != nil })
}

// B-005, B-006, B-009, B-011, B-013, B-016, B-017, B-019, B-020: a terminal with viewers at two
// gateways.
func TestBackendAITerminal(t *testing.T) {
	f, g := twoGateways(t)
	f.withShells()
	id := f.signer().create("/session", `{"image":"base","name":"term"}`, 201).SessionID
	one := f.signer().view("/stream/session/term/pty")
	one.until("$ ")
	two := g.signer().view("/stream/kernel/" + id + "/pty?app=ttyd") // B-007: the name of a service
	two.until("$ ")

	one.stdin("ls\r\x03")
	one.until("ls\r\x03")
	two.until("ls\r\x03")
	two.send(fws.BinaryMessage, `{"type":"stdin","chars":"eA=="}`)
	one.until("x")
	if n := len(f.terminals()); n != 1 {
		t.Fatalf("%d terminals", n)
	}

	// B-012, B-019: errors leave the connection open.
	for _, raw := range []string{"x", "{}", `{"type":"paste"}`, `{"type":"stdin","chars":"*"}`, `{"type":"resize","rows":0,"cols":1}`} {
		one.send(fws.TextMessage, raw)
		if got := one.until("!"); got != "!" {
			t.Errorf("%s: %q", raw, got)
		}
	}
	one.send(fws.TextMessage, `{"type":"ping"}`)
	one.send(fws.TextMessage, `{"type":"resize","rows":33,"cols":101}`) // B-014
	one.stdin("y")
	if got := one.until("y"); got != "y" { // B-015: a ping has no answer
		t.Errorf("after a ping: %q", got)
	}
	two.until("y")

	// A client that returns gets the screen again, without the queries.
	one.stdin("\x1b[H\x1b[2Jscreen\x1b[6n")
	one.until("\x1b[6n")
	again := g.signer().view("/stream/session/term/pty")
	if got := again.until("screen"); got != "\x1b[H\x1b[2Jscreen" {
		t.Errorf("returned to %q", got)
	}

	// B-016: a restart keeps the connections, and repeated ones count once.
	old := f.terminals()[0].ID
	one.send(fws.TextMessage, `{"type":"restart"}`)
	one.send(fws.TextMessage, `{"type":"restart"}`)
	for i, v := range []*view{one, two, again} {
		if got := v.until("$ "); !strings.HasSuffix(got, "Restarting...\r\n$ ") {
			t.Errorf("viewer %d after the restart: %q", i, got)
		}
	}
	if all := f.terminals(); len(all) != 2 || all[0].ID != old || !all[1].Active() {
		t.Errorf("%d terminals", len(all))
	}
	two.stdin("z")
	one.until("z")

	f.signer().do("DELETE", "/session/term", "").want(t, "DELETE", 200, "")
}

// B-005, B-008, B-010: what is not a terminal.
func TestBackendAITerminalRejected(t *testing.T) {
	f := newFixture(t)
	s := f.signer()
	s.create("/session", `{"image":"base","name":"term"}`, 201)
	for path, want := range map[string]int{
		"/stream/session/none/pty": 404, "/stream/session/term/pty?app=none": 404, "/stream/session/term/none": 404, "/socket.io/": 404, "/socket.io/?EIO=4&transport=websocket": 404,
	} {
		if _, resp, err := s.dial(path); err == nil || resp == nil || resp.StatusCode != want {
			t.Errorf("%s: %v, %v; want %d", path, resp, err, want)
		}
	}
	s.do("GET", "/stream/session/term/pty?app=none", "").problem(t, "unknown app", 404, "app-not-found")
	if a := s.do("GET", "/stream/session/term/apps", ""); a.code != 200 || !strings.Contains(a.body, `"name":"ttyd"`) {
		t.Errorf("apps: %d %s", a.code, a.body)
	}
}

// A drain closes a terminal with 1001, and the client finds the same shell at another gateway.
func TestBackendAITerminalOutlivesItsGateway(t *testing.T) {
	f, g := twoGateways(t)
	f.withShells()
	f.signer().create("/session", `{"image":"base","name":"term"}`, 201)
	v := g.signer().view("/stream/session/term/pty")
	v.until("$ ")
	v.stdin("hello")
	v.until("hello")
	drained := make(chan error, 1)
	go func() { drained <- g.stop() }()
	if got := v.closed(); !strings.Contains(got, "close 1001") {
		t.Errorf("drain: %s", got)
	}
	v.ws.Close()
	if err := <-drained; err != nil {
		t.Error(err)
	}
	back := f.signer().view("/stream/session/term/pty")
	if got := back.until("hello"); got != "$ hello" {
		t.Errorf("returned to %q", got)
	}
	if n := len(f.terminals()); n != 1 {
		t.Errorf("%d terminals", n)
	}
}
