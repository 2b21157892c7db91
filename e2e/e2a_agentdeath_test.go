package e2e_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fasthttp/websocket"

	"github.com/millrace/millrace/e2e/rig"
)

// gated is a command that reports to the FIFO started that it runs, and then waits for a line of the FIFO gate.
const gated = "echo ran >>ran; echo begun; echo x >/tmp/started; cat /tmp/gate; echo over"

// scripted serves the model by plain HTTP. before gets each request first, with its number, which begins with 1. The
// model does not respond if it returns false.
func (m *agentModel) scripted(t *testing.T, before func(n int, w http.ResponseWriter, r *http.Request) bool) *httptest.Server {
	t.Helper()
	requests := make(chan int, 1)
	requests <- 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := 1 + <-requests
		requests <- n
		if before(n, w, r) {
			m.respond(w, r)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// egressTo returns arguments of a host whose sandboxes may call models of the test, and the URL of such a model in a
// sandbox.
func egressTo(t *testing.T) (args []string, in func(server *httptest.Server) string) {
	t.Helper()
	dns := rig.DNS(t, map[string]string{"example.com": "127.0.0.1"})
	return []string{"--egress", "internet", "--egress-allow", "127.0.0.1", "--egress-dns", dns}, func(server *httptest.Server) string {
		at, err := url.Parse(server.URL)
		must(t, err)
		if rig.Driver(t) == "direct" { // the sandbox uses the machine's own resolver
			return server.URL
		}
		return "http://example.com:" + at.Port()
	}
}

// crashed kills a program, and returns when it works again.
func crashed(t *testing.T, s *rig.Split, name string) {
	t.Helper()
	_, err := s.Crash(name)
	must(t, err)
	must(t, s.Settled(1))
}

// tally returns the number of frames of a type, and the tokens that all frames report.
func tally(all []agentFrame, kind string) (n int, input, output int64) {
	for _, f := range all {
		if f.Type == kind {
			n++
		}
		input, output = input+f.Input, output+f.Tokens
	}
	return n, input, output
}

// hostd is killed in a tool call, and in the middle of an answer of the model: the call runs once, its result is whole,
// each answer's tokens are counted once, and the conversation continues.
func TestE2AAgentTurnOutlivesHost(t *testing.T) {
	t.Parallel()
	args, in := egressTo(t)
	s := newTopology(t, rig.Topology{HostArgs: args})
	m := newAgentModel(t)
	m.command = gated
	half := make(chan struct{})
	model := m.scripted(t, func(n int, w http.ResponseWriter, r *http.Request) bool {
		if n == 3 { // the first answer of the second turn
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, `data: {"type":"message_start","message":{"usage":{"input_tokens":7,"output_tokens":1}}}`+"\n\n")
			must(t, http.NewResponseController(w).Flush())
			close(half)
			io.Copy(io.Discard, r.Body) // the server sees the end of the connection only after the request
			<-r.Context().Done()
		}
		return n != 3
	})
	a := s.APIs[0]
	a.Want(t, 201, "POST", secretsPath, map[string]any{"name": "llm", "values": map[string]any{"LLM_API_KEY": "k", "ANTHROPIC_BASE_URL": in(model)}}, bearer(a)...)
	c := converse(t, a, "/v1/sessions", `{"template":"standard","llm":{"vendor":"anthropic"},"user_id":"you","secrets":["llm"]}`, 201)
	k := talkTo(t, a, &c, "")
	k.run("rm -f /tmp/started /tmp/gate; mkfifo /tmp/started /tmp/gate")
	turn := func(what string, during func()) {
		t.Helper()
		k.tell(`{"type":"prompt","text":"go on"}`)
		during()
		k.ws.SetReadDeadline(time.Now().Add(time.Minute))
		var all []agentFrame
		for len(all) == 0 || all[len(all)-1].Type != "turn_end" {
			_, raw, err := k.message()
			must(t, err)
			var f agentFrame
			must(t, json.Unmarshal(raw, &f))
			all = append(all, f)
		}
		var outputs []string
		for _, f := range all {
			if f.Type == "tool_result" {
				outputs = append(outputs, f.Output)
			}
		}
		if want := []string{"begun\nfreed\nover\n\n[exit code 0]"}; !slices.Equal(outputs, want) {
			t.Errorf("%s: results of the tool %q, want %q", what, outputs, want)
		}
		calls, input, output := tally(all, "tool_call")
		if end := all[len(all)-1]; end.Status != "completed" || calls != 1 || input != 14 || output != 6 {
			t.Errorf("%s: %+v after %d calls, %d and %d tokens; want completed, 1, 14 and 6", what, end, calls, input, output)
		}
	}
	vm := agentVM{api: a, ID: c.VM}
	turn("a tool call", func() {
		vm.exec(t, "cat /tmp/started") // the command waits at the gate
		crashed(t, s, "host-1")
		vm.exec(t, "echo freed >/tmp/gate")
	})
	turn("an answer", func() {
		<-half
		crashed(t, s, "host-1")
		vm.exec(t, "cat /tmp/started; echo freed >/tmp/gate")
	})
	if got := k.run("cat /workspace/ran"); got != "ran\nran\n" {
		t.Errorf("the commands of two turns ran %q", got)
	}
	if n := len(m.keys); n != 4 {
		t.Errorf("the model gave %d answers, want 4", n)
	}
}

// NATS is killed in tool calls of two one-shot agents: one waits at a gate, and the other runs and ends while there is no
// NATS. Both results and exit codes are whole.
func TestE2AAgentsOutliveNATS(t *testing.T) {
	t.Parallel()
	if d := rig.Driver(t); d == "direct" || d == "jail" || !rootInside(t) {
		t.Skip("agents have no files of their own in the root directory")
	}
	args, in := egressTo(t)
	s := newTopology(t, rig.Topology{HostArgs: args})
	a := s.APIs[0]
	start := func(m *agentModel, server *httptest.Server) agentVM {
		return newAgent(t, a, map[string]any{"model": "claude-x", "task": "work", "agent_env": map[string]string{"ANTHROPIC_BASE_URL": in(server)}})
	}
	waiter := newAgentModel(t)
	waiter.command = "mkfifo /tmp/started /tmp/gate; " + gated
	waits := start(waiter, waiter.scripted(t, func(int, http.ResponseWriter, *http.Request) bool { return true }))
	waits.exec(t, "until [ -p /tmp/gate ]; do :; done; cat /tmp/started")

	asked, dead := make(chan struct{}), make(chan struct{})
	runner := newAgentModel(t)
	answered := make(chan struct{})
	runs := start(runner, runner.scripted(t, func(n int, _ http.ResponseWriter, _ *http.Request) bool {
		switch n {
		case 1:
			close(asked)
			<-dead
		case 2:
			close(answered)
		}
		return true
	}))
	<-asked
	s.Program("nats-1").Kill9()
	close(dead)
	select {
	case <-answered:
	case <-time.After(20 * time.Second):
		t.Error("the agent does not go on without NATS")
	}
	must(t, s.RestartProgram("nats-1"))
	must(t, s.Settled(1))
	runs.leaves(t, "an agent that ran without NATS", "completed", 0, "the tool said 1\n\n[exit code 0]\n")
	waits.exec(t, "echo freed >/tmp/gate")
	waits.leaves(t, "an agent that waited", "completed", 0, "the tool said begun\nfreed\nover\n\n[exit code 0]\n")
	if got := waits.exec(t, "cat ran"); got != "ran\n" {
		t.Errorf("the command that waited ran %q", got)
	}
	for what, m := range map[string]*agentModel{"waited": waiter, "ran": runner} {
		if n := len(m.keys); n != 2 {
			t.Errorf("the model of the agent that %s gave %d answers, want 2", what, n)
		}
	}
}

// hostd is killed when a screenshot is half captured, and when whole ones are on their way: the client gets each one
// once and whole.
func TestE2AScreenshotsOutliveHost(t *testing.T) {
	t.Parallel()
	s := newTopology(t, rig.Topology{})
	buildDesktop(t, s.APIs[0])
	c := converse(t, s.APIs[0], "/v1/sessions", desktopBody, 201)
	k := talkTo(t, s.APIs[0], &c, "")
	vm := agentVM{api: s.APIs[0], ID: c.VM}
	if raw, failed := k.screenshot(); raw == nil {
		t.Fatalf("%+v", failed)
	}
	k.run("mkfifo /tmp/started /tmp/gate")
	capture := func(script string) {
		t.Helper()
		k.run("mkdir -p /tmp/bin; cat >/tmp/bin/scrot <<'E'\n#!/bin/sh\n" + script + "\nE\nchmod 755 /tmp/bin/scrot; cp /tmp/bin/scrot /usr/local/bin/ || sudo -n cp /tmp/bin/scrot /usr/local/bin/")
	}
	pictures := func(n int) (all []string) {
		t.Helper()
		for range n {
			typ, raw, err := k.message()
			must(t, err)
			if typ != websocket.BinaryMessage {
				t.Fatalf("got %s", raw)
			}
			all = append(all, fmt.Sprintf("%x", sha256.Sum256(bytes.Clone(raw))))
		}
		return all
	}
	sums := func() []string { return strings.Fields(vm.exec(t, "cut -d' ' -f1 /tmp/sums")) }

	capture(`/usr/bin/scrot "$@" >/tmp/shot; sha256sum /tmp/shot >/tmp/sums; head -c 1000 /tmp/shot; echo x >/tmp/started; cat /tmp/gate >/dev/null; tail -c +1001 /tmp/shot`)
	k.tell(`{"type":"screenshot"}`)
	vm.exec(t, "cat /tmp/started") // a part is printed
	crashed(t, s, "host-1")
	vm.exec(t, "echo x >/tmp/gate")
	if got, want := pictures(1), sums(); len(want) != 1 || got[0] != want[0] {
		t.Errorf("a half captured screenshot: got %s, want %s", got, want)
	}

	const calls = 8
	vm.exec(t, "rm /tmp/sums")
	capture(`head -c 3000000 /dev/urandom >/tmp/shot; sha256sum /tmp/shot >>/tmp/sums; cat /tmp/shot`)
	for range calls {
		k.tell(`{"type":"screenshot"}`)
	}
	got := pictures(1)
	crashed(t, s, "host-1")
	got = append(got, pictures(calls-1)...)
	if want := sums(); !slices.Equal(got, want) {
		t.Errorf("screenshots on their way: got %s, want %s", got, want)
	}
	capture(`exec /usr/bin/scrot "$@"`)
	if raw, failed := k.screenshot(); raw == nil {
		t.Errorf("after the death of a host: %+v", failed)
	}
}
