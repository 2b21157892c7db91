package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
)

// claudeModel is a model that speaks the Messages API: it requests one command of the shell, and then
// ends the turn with a text.
type claudeModel struct {
	command, text string

	mu   sync.Mutex
	keys []string // of the requests
}

// claudeMessage is a message of a request.
type claudeMessage struct {
	Content json.RawMessage `json:"content"`
}

func (m *claudeModel) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Model    string            `json:"model"`
		Stream   bool              `json:"stream"`
		Messages []claudeMessage   `json:"messages"`
		Tools    []json.RawMessage `json:"tools"`
	}
	if r.Method != http.MethodPost || json.NewDecoder(r.Body).Decode(&body) != nil {
		w.WriteHeader(http.StatusOK)
		return
	}
	if strings.HasSuffix(r.URL.Path, "/count_tokens") {
		fmt.Fprint(w, `{"input_tokens":1}`)
		return
	}
	m.mu.Lock()
	m.keys = append(m.keys, r.Header.Get("X-Api-Key"))
	m.mu.Unlock()
	done := len(body.Tools) == 0
	for _, x := range body.Messages {
		done = done || strings.Contains(string(x.Content), `"tool_result"`)
	}
	block, delta, reason := map[string]any{"type": "text", "text": ""}, map[string]any{"type": "text_delta", "text": m.text}, "end_turn"
	whole := map[string]any{"type": "text", "text": m.text}
	if !done {
		input := map[string]any{"command": m.command, "description": "it"}
		raw, _ := json.Marshal(input)
		block = map[string]any{"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": map[string]any{}}
		delta, reason = map[string]any{"type": "input_json_delta", "partial_json": string(raw)}, "tool_use"
		whole = map[string]any{"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": input}
	}
	usage := map[string]any{"input_tokens": 1, "output_tokens": 1}
	msg := map[string]any{"id": "msg_1", "type": "message", "role": "assistant", "model": body.Model, "content": []any{}, "stop_reason": nil, "stop_sequence": nil, "usage": usage}
	if !body.Stream {
		msg["content"], msg["stop_reason"] = []any{whole}, reason
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(msg)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for _, e := range []map[string]any{
		{"type": "message_start", "message": msg},
		{"type": "content_block_start", "index": 0, "content_block": block},
		{"type": "content_block_delta", "index": 0, "delta": delta},
		{"type": "content_block_stop", "index": 0},
		{"type": "message_delta", "delta": map[string]any{"stop_reason": reason, "stop_sequence": nil}, "usage": usage},
		{"type": "message_stop"},
	} {
		raw, _ := json.Marshal(e)
		fmt.Fprintf(w, "event: %s\ndata: %s\n\n", e["type"], raw)
	}
}
