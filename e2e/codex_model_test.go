package e2e_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// codexStep is a call of a tool that the model requests. A session_id of 0 in its arguments
// stands for the last terminal that the client reported.
type codexStep struct {
	tool string
	args map[string]any
}

// codexModel is a model that speaks the Responses API: it requests the steps of a script one
// after another, whatever they return, and then ends the turn.
type codexModel struct {
	*httptest.Server
	steps []codexStep

	mu      sync.Mutex
	results []string // of the steps
}

// newCodexModel serves a model on loopback until the end of the test.
func newCodexModel(t *testing.T, steps ...codexStep) *codexModel {
	t.Helper()
	m := &codexModel{steps: steps}
	m.Server = httptest.NewServer(m.routes())
	t.Cleanup(m.Close)
	return m
}

// routes are the routes of the model.
func (m *codexModel) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/responses", m.respond)
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"object":"list","data":[{"id":"test","object":"model"}],"models":[]}`)
	})
	return mux
}

// codexInput is an item of the conversation.
type codexInput struct {
	Type   string          `json:"type"`
	Output json.RawMessage `json:"output"`
}

func (m *codexModel) respond(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Input []codexInput `json:"input"`
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var results []string
	for _, i := range body.Input {
		if strings.HasSuffix(i.Type, "_call_output") {
			results = append(results, outputText(i.Output))
		}
	}
	m.mu.Lock()
	m.results = results
	m.mu.Unlock()
	n := len(results)
	item := map[string]any{
		"type": "message", "id": "msg", "role": "assistant", "status": "completed",
		"content": []any{map[string]any{"type": "output_text", "text": "done", "annotations": []any{}}},
	}
	if n < len(m.steps) {
		item = map[string]any{
			"type": "function_call", "id": fmt.Sprint("fc", n), "call_id": fmt.Sprint("call", n), "status": "completed",
			"name": m.steps[n].tool, "arguments": m.steps[n].arguments(results),
		}
	}
	w.Header().Set("Content-Type", "text/event-stream")
	id := fmt.Sprint("r", n)
	usage := map[string]any{"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
	for _, e := range []map[string]any{
		{"type": "response.created", "response": map[string]any{"id": id}},
		{"type": "response.output_item.done", "output_index": 0, "item": item},
		{"type": "response.completed", "response": map[string]any{"id": id, "usage": usage}},
	} {
		raw, _ := json.Marshal(e)
		fmt.Fprintf(w, "event: %s\ndata: %s\n\n", e["type"], raw)
	}
}

// outputText returns the text of a result: a string, or an object that contains it.
func outputText(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) != nil {
		return string(raw)
	}
	return text
}

var terminalID = regexp.MustCompile(`session ID (\d+)`)

// arguments returns the arguments of a step as JSON.
func (s *codexStep) arguments(results []string) string {
	args := map[string]any{}
	for k, v := range s.args {
		args[k] = v
	}
	if args["session_id"] == 0 {
		for _, r := range results {
			for _, m := range terminalID.FindAllStringSubmatch(r, -1) {
				args["session_id"], _ = strconv.Atoi(m[1])
			}
		}
	}
	raw, _ := json.Marshal(args)
	return string(raw)
}

// Results returns what the steps returned.
func (m *codexModel) Results() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.results
}
