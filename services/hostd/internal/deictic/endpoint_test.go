package deictic

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/millrace/millrace/events/bootstrap"
	"github.com/millrace/millrace/services/hostd/internal/deictic/llm"
)

// step is an answer of the scripted model: a call of a tool, a text, or a response of its own.
type step struct {
	tool, args string
	text       string
	serve      func(w http.ResponseWriter, r *http.Request)
}

// scripted is an endpoint over TLS that answers requests with the steps of a script, in the format of the
// request's path.
type scripted struct {
	*httptest.Server
	mu     sync.Mutex
	steps  []step
	bodies []string // of the requests
	keys   []string
}

func newScripted(t *testing.T, steps ...step) *scripted {
	t.Helper()
	s := &scripted{steps: steps}
	s.Server = httptest.NewTLSServer(http.HandlerFunc(s.answer))
	t.Cleanup(s.Close)
	return s
}

func (s *scripted) answer(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	n := len(s.bodies)
	s.bodies = append(s.bodies, string(body))
	s.keys = append(s.keys, r.Header.Get("Authorization")+r.Header.Get("X-Api-Key"))
	var now step
	if n < len(s.steps) {
		now = s.steps[n]
	} else {
		now = step{serve: func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "the script has ended", http.StatusBadRequest)
		}}
	}
	s.mu.Unlock()
	if now.serve != nil {
		now.serve(w, r)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	if strings.HasSuffix(r.URL.Path, "/messages") {
		io.WriteString(w, messagesStream(&now, n))
	} else {
		io.WriteString(w, chatStream(&now, n))
	}
}

func (s *scripted) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.bodies...)
}

func quote(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}

func chatStream(s *step, n int) string {
	var b strings.Builder
	event := func(format string, args ...any) { fmt.Fprintf(&b, "data: "+format+"\n\n", args...) }
	half := len(s.args) / 2
	if s.tool != "" {
		event(`{"choices":[{"delta":{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"c%d","type":"function","function":{"name":%q,"arguments":""}}]}}]}`, n, s.tool)
		for _, part := range []string{s.args[:half], s.args[half:]} {
			event(`{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":%s}}]}}]}`, quote(part))
		}
		event(`{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}`)
	} else {
		for _, word := range strings.SplitAfter(s.text, " ") {
			event(`{"choices":[{"delta":{"content":%s}}]}`, quote(word))
		}
		event(`{"choices":[{"delta":{},"finish_reason":"stop"}]}`)
	}
	event(`{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":5}}`)
	event("[DONE]")
	return b.String()
}

func messagesStream(s *step, n int) string {
	var b strings.Builder
	event := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "event: %s\ndata: {\"type\":%q,"+format+"}\n\n", append([]any{name, name}, args...)...)
	}
	half := len(s.args) / 2
	event("message_start", `"message":{"usage":{"input_tokens":4,"cache_read_input_tokens":6,"output_tokens":1}}`)
	event("ping", `"x":1`)
	if s.tool != "" {
		event("content_block_start", `"index":0,"content_block":{"type":"tool_use","id":"c%d","name":%q,"input":{}}`, n, s.tool)
		for _, part := range []string{s.args[:half], s.args[half:]} {
			event("content_block_delta", `"index":0,"delta":{"type":"input_json_delta","partial_json":%s}`, quote(part))
		}
		event("content_block_stop", `"index":0`)
		event("message_delta", `"delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":5}`)
	} else {
		event("content_block_start", `"index":0,"content_block":{"type":"text","text":""}`)
		for _, word := range strings.SplitAfter(s.text, " ") {
			event("content_block_delta", `"index":0,"delta":{"type":"text_delta","text":%s}`, quote(word))
		}
		event("message_delta", `"delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":5}`)
	}
	event("message_stop", `"x":1`)
	return b.String()
}

// run is a run of the agent in a test.
type run struct {
	*program
	out, log bytes.Buffer
	dir      string
	captured [][]byte // screenshots of the last turn, as the client gets them
}

// newRun returns a program that has the scripted model. values are added to its configuration.
func newRun(t *testing.T, s *scripted, values map[string]string) *run {
	t.Helper()
	r := &run{dir: t.TempDir()}
	all := map[string]string{"LLM_VENDOR": "openai", "LLM_BASE_URL": s.URL + "/v1", "LLM_KEY": "sk-canary", "LLM_MODEL": "m1"}
	for k, v := range values {
		all[k] = v
	}
	home := filepath.Join(r.dir, "home")
	if err := os.Mkdir(home, 0o700); err != nil {
		t.Fatal(err)
	}
	r.program = &program{
		config: config(filepath.Join(r.dir, "env.json")), environ: []string{"PATH=" + os.Getenv("PATH")}, home: home,
		client: s.Client(), stdin: strings.NewReader(""), stdout: &r.out, stderr: &r.log,
	}
	r.configure(t, all)
	return r
}

func (r *run) configure(t *testing.T, values map[string]string) {
	t.Helper()
	if err := os.WriteFile(string(r.config), []byte(quote(values)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// say runs a turn and returns its frames.
func (r *run) say(t *testing.T, prompt string) (code int, all []frame) {
	t.Helper()
	r.out.Reset()
	r.stdin = strings.NewReader(prompt)
	code = r.turn(t.Context())
	r.captured = nil
	for line := range strings.Lines(r.out.String()) {
		var f frame
		if encoded, ok := strings.CutPrefix(line, bootstrap.AgentScreenshot); ok {
			png, err := base64.StdEncoding.DecodeString(strings.TrimSpace(encoded))
			if err != nil {
				t.Fatal(err)
			}
			r.captured = append(r.captured, png)
			continue
		}
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		all = append(all, f)
	}
	return code, all
}

func find(all []frame, kind string) (out []frame) {
	for _, f := range all {
		if f.Type == kind {
			out = append(out, f)
		}
	}
	return out
}

// vendors are one vendor per format.
var vendors = []llm.Vendor{llm.OpenAI, llm.Anthropic}
