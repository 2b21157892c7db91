package deictic

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"

	"github.com/millrace/millrace/events/bootstrap"
	"github.com/millrace/millrace/services/hostd/internal/deictic/llm"
)

// Statuses of a turn.
const (
	statusCompleted   = "completed"
	statusFailed      = "failed"
	statusInterrupted = "interrupted"
)

// frame is a text frame of an agent: see docs/e2a-agent.md.
type frame struct {
	Type   string          `json:"type"`
	Agent  string          `json:"agent,omitempty"`
	Text   string          `json:"text,omitempty"`
	ID     string          `json:"id,omitempty"`
	Name   string          `json:"name,omitempty"`
	Args   json.RawMessage `json:"arguments,omitempty"`
	Output *string         `json:"output,omitempty"`
	Failed bool            `json:"failed,omitempty"`
	Event  string          `json:"event,omitempty"`
	Model  string          `json:"model,omitempty"`
	Input  *int64          `json:"input_tokens,omitempty"`
	Tokens *int64          `json:"output_tokens,omitempty"`
	Status string          `json:"status,omitempty"`
	Error  string          `json:"error,omitempty"`
}

// maxShown limits the output of a tool in a frame.
const maxShown = 16 << 10

// frames prints what happens as frames, one per line, each in one write.
type frames struct {
	w     io.Writer
	model func() string
}

func (f *frames) send(v *frame) {
	b, err := json.Marshal(v)
	if err == nil {
		f.w.Write(append(b, '\n')) //nolint:errcheck // without a reader the turn continues for the record
	}
}

func (f *frames) text(agent, part string) {
	f.send(&frame{Type: "agent_text", Agent: agent, Text: part})
}

func (f *frames) answered(agent, text string, u llm.Usage) {
	if text != "" {
		f.send(&frame{Type: "agent_message", Agent: agent, Text: text})
	}
	f.send(&frame{Type: "runtime_event", Event: "llm_usage", Agent: agent, Model: f.model(), Input: &u.Input, Tokens: &u.Output})
}

func (f *frames) called(agent string, c *llm.Call) {
	f.send(&frame{Type: "tool_call", Agent: agent, ID: c.ID, Name: c.Name, Args: c.Args})
}

func (f *frames) returned(agent string, r *llm.Result) {
	out := shorten(r.Output, maxShown)
	f.send(&frame{Type: "tool_result", Agent: agent, ID: r.ID, Output: &out, Failed: r.Failed})
}

// captured prints a screenshot, which the runtime sends as a binary frame.
func (f *frames) captured(png []byte) {
	b := append(make([]byte, 0, len(bootstrap.AgentScreenshot)+base64.StdEncoding.EncodedLen(len(png))+1), bootstrap.AgentScreenshot...)
	f.w.Write(append(base64.StdEncoding.AppendEncode(b, png), '\n')) //nolint:errcheck // see send
}

// progress prints what happens as lines for people.
type progress struct{ w io.Writer }

func (progress) text(string, string) {}

func (p progress) answered(agent, text string, u llm.Usage) {
	fmt.Fprintf(p.w, "%s: %d tokens in, %d out\n", agent, u.Input, u.Output)
	if text != "" {
		fmt.Fprintf(p.w, "%s: %s\n", agent, text)
	}
}

func (p progress) called(agent string, c *llm.Call) {
	fmt.Fprintf(p.w, "%s: %s %s\n", agent, c.Name, shorten(string(c.Args), 500))
}

func (progress) captured([]byte) {}

func (p progress) returned(agent string, r *llm.Result) {
	fmt.Fprintf(p.w, "%s: returned %d bytes\n", agent, len(r.Output))
}
