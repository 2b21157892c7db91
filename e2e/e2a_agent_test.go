package e2e_test

import (
	"cmp"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fasthttp/websocket"

	"github.com/millrace/millrace/e2e/rig"
)

// agentFrame is a frame of the agent.
type agentFrame struct {
	Type, Text, Name, Output, Status, Error string
	Input                                   int64 `json:"input_tokens"`
	Tokens                                  int64 `json:"output_tokens"`
}

// prompt runs a turn of the agent and returns its frames.
func (k *talk) prompt(text string) (all []agentFrame) {
	k.t.Helper()
	raw, err := json.Marshal(map[string]string{"type": "prompt", "text": text})
	must(k.t, err)
	must(k.t, k.ws.WriteMessage(websocket.TextMessage, raw))
	return k.turn()
}

// turn returns the frames of the agent up to the end of its turn.
func (k *talk) turn() (all []agentFrame) {
	k.t.Helper()
	for {
		_, raw, err := k.ws.ReadMessage()
		must(k.t, err)
		var f agentFrame
		must(k.t, json.Unmarshal(raw, &f))
		if all = append(all, f); f.Type == "turn_end" {
			return all
		}
	}
}

// agentModel is a model over TLS that calls a tool and then answers with the output of the tool.
type agentModel struct {
	*httptest.Server
	command string        // that the tool runs; empty: one that counts its runs
	held    atomic.Bool   // whether prompts with the text "hold" get no response
	waiting chan struct{} // receives for each such request
	keys    chan string   // of the requests
}

func newAgentModel(t *testing.T) *agentModel {
	t.Helper()
	m := &agentModel{waiting: make(chan struct{}, 16), keys: make(chan string, 100)}
	m.Server = httptest.NewTLSServer(http.HandlerFunc(m.respond))
	t.Cleanup(m.Close)
	return m
}

func (m *agentModel) respond(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Messages []struct {
			Role    string
			Content []struct{ Type, Text, Content string }
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil || len(body.Messages) == 0 || r.URL.Path != "/v1/messages" {
		http.Error(w, fmt.Sprint(r.URL.Path, err), http.StatusBadRequest)
		return
	}
	m.keys <- r.Header.Get("X-Api-Key")
	last := body.Messages[len(body.Messages)-1].Content
	part := last[len(last)-1]
	if strings.Contains(part.Text, "hold") && m.held.Load() {
		m.waiting <- struct{}{}
		<-r.Context().Done()
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	events := []string{`{"type":"message_start","message":{"usage":{"input_tokens":7,"output_tokens":1}}}`}
	if part.Type == "tool_result" {
		text, _ := json.Marshal("the tool said " + strings.TrimSpace(part.Content))
		events = append(events, `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`,
			fmt.Sprintf(`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":%s}}`, text))
	} else {
		command, _ := json.Marshal(map[string]string{"command": cmp.Or(m.command, "echo ran >> ran; wc -l < ran")})
		args, _ := json.Marshal(string(command))
		events = append(events, `{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"c1","name":"shell_exec","input":{}}}`,
			fmt.Sprintf(`{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":%s}}`, args))
	}
	events = append(events, `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":3}}`, `{"type":"message_stop"}`)
	for _, e := range events {
		io.WriteString(w, "data: "+e+"\n\n")
	}
}

// E-042, E-208, E-212, E-237: a session's agent completes a task by a tool; a new key takes effect; and a turn
// that died with its sandbox continues in the next one.
func TestE2AAgentTurns(t *testing.T) {
	t.Parallel()
	m := newAgentModel(t)
	u := rig.NewUp(t, rig.Options{
		Args: []string{"--egress", "internet", "--egress-allow", "127.0.0.1", "--egress-dns", rig.DNS(t, map[string]string{"example.com": "127.0.0.1"})},
	})
	_, port, err := net.SplitHostPort(m.Listener.Addr().String())
	must(t, err)
	url := "https://example.com:" + port
	if rig.Driver(t) == "direct" { // the sandbox uses the machine's own resolver
		url = m.URL
	}
	values := func(key string) map[string]any {
		return map[string]any{"LLM_API_KEY": key, "ANTHROPIC_BASE_URL": url, "SSL_CERT_FILE": "/tmp/agent-roots.pem"}
	}
	bearer := []string{"Authorization", "Bearer " + u.Key}
	u.Want(t, 201, "POST", secretsPath, map[string]any{"name": "llm", "values": values("first")}, bearer...)
	c := converse(t, u.API, "/v1/sessions", `{"template":"standard","llm":{"vendor":"anthropic"},"user_id":"you","secrets":["llm"]}`, 201)
	k := talkTo(t, u.API, &c, "")
	roots := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: m.Certificate().Raw}))
	k.run("cat > /tmp/agent-roots.pem <<'E'\n" + roots + "E")
	got := k.prompt("count")
	end := got[len(got)-1]
	if end.Status != "completed" || len(got) < 7 {
		t.Fatalf("got %+v", got)
	}
	if got[1].Type != "tool_call" || got[1].Name != "shell_exec" || got[0].Input != 7 || got[0].Tokens != 3 || !strings.Contains(got[2].Output, "1\n") {
		t.Errorf("got %+v", got)
	}
	if key := <-m.keys; key != "first" {
		t.Errorf("key %q", key)
	}
	<-m.keys
	u.Want(t, 200, "PUT", secretsPath+"/llm", map[string]any{"values": values("second")}, bearer...)
	if f, err := k.read(); err != nil || f.Event != "config_update" {
		t.Fatalf("got %+v, %v", f, err)
	}
	m.held.Store(true)
	raw := []byte(`{"type":"prompt","text":"hold"}`)
	must(t, k.ws.WriteMessage(websocket.TextMessage, raw))
	<-m.waiting
	if key := <-m.keys; key != "second" {
		t.Errorf("key %q", key)
	}
	m.held.Store(false)
	c = converse(t, u.API, "/v1/sessions/resume", resumption(c.ID), 200)
	k = talkTo(t, u.API, &c, "")
	got = k.turn()
	if end := got[len(got)-1]; end.Status != "completed" || !strings.Contains(got[2].Output, "2\n") {
		t.Errorf("after the resume: %+v", got)
	}
	if out := k.run("cat /workspace/ran"); !strings.HasPrefix(out, "ran\nran\n") {
		t.Errorf("got %q", out)
	}
}

// E-022, E-029, E-083, E-119, E-232, E-233: without a program in the template, a sandbox runs the platform's own agent.
func TestE2AAgentOfThePlatform(t *testing.T) {
	t.Parallel()
	m := newAgentModel(t)
	roots := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: m.Certificate().Raw}))
	dns := rig.DNS(t, map[string]string{"example.com": "127.0.0.1"})
	s := agentHosts(t, rig.Topology{HostArgs: []string{"--egress", "internet", "--egress-allow", "127.0.0.1", "--egress-dns", dns}},
		"rm /usr/local/bin/agent", "printf '%s' '"+roots+"' >/etc/model-ca.pem && chmod 644 /etc/model-ca.pem")
	_, port, err := net.SplitHostPort(m.Listener.Addr().String())
	must(t, err)
	vm := newAgent(t, s.APIs[0], map[string]any{"model": "claude-x", "task": "count", "agent_env": map[string]string{
		"ANTHROPIC_BASE_URL": "https://example.com:" + port, "SSL_CERT_FILE": "/etc/model-ca.pem",
	}})
	const result = "the tool said 1\n\n[exit code 0]\n"
	vm.leaves(t, "the task", "completed", 0, result)
	logs := vm.logs(t)
	if !strings.HasSuffix(logs, result) || !strings.Contains(logs, "primary: shell_exec") || strings.Contains(logs, "canary") {
		t.Errorf("the logs are %q", logs)
	}
	if got := vm.exec(t, "wc -l <ran"); got != "1\n" {
		t.Errorf("the command ran %q times", got)
	}
	for range 2 {
		if key := <-m.keys; key != "canary" {
			t.Errorf("key %q", key)
		}
	}
}
