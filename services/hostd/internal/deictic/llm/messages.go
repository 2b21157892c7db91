package llm

import (
	"encoding/json"
	"fmt"
	"strings"
)

// messages is Anthropic's Messages API.
type messages struct{}

// anthropicVersion is the version of the API.
const anthropicVersion = "2023-06-01"

// maxTokens limits an answer, which the API requires. All models since Claude 3.7 allow as much.
const maxTokens = 8192

func (messages) path() string { return "/messages" }

func (messages) header(key string) (name, value string) { return "X-Api-Key", key }

type messagesRequest struct {
	Model     string         `json:"model"`
	MaxTokens int            `json:"max_tokens"`
	System    string         `json:"system,omitempty"`
	Messages  []blockMessage `json:"messages"`
	Tools     []blockTool    `json:"tools,omitempty"`
	Stream    bool           `json:"stream"`
}

type blockMessage struct {
	Role    string  `json:"role"`
	Content []block `json:"content"`
}

// block is a part of a message: text, image, tool_use or tool_result.
type block struct {
	Type    string          `json:"type"`
	Text    string          `json:"text,omitempty"`
	ID      string          `json:"id,omitempty"`
	Name    string          `json:"name,omitempty"`
	Input   json.RawMessage `json:"input,omitempty"`
	UseID   string          `json:"tool_use_id,omitempty"`
	Content any             `json:"content,omitempty"` // of a tool_result: a string or blocks
	Source  *blockSource    `json:"source,omitempty"`  // of an image
	Failed  bool            `json:"is_error,omitempty"`
}

type blockSource struct {
	Type      string `json:"type"`
	MediaType string `json:"media_type"`
	Data      []byte `json:"data"` // in base64
}

type blockTool struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Schema      json.RawMessage `json:"input_schema"`
}

func (messages) encode(e *Endpoint, r *Request) any {
	out := messagesRequest{Model: e.Model, MaxTokens: maxTokens, System: r.System, Stream: true}
	for i := range r.Messages {
		role, blocks := blocksOf(&r.Messages[i])
		if len(blocks) == 0 {
			continue // the API refuses empty messages
		}
		// Results of one answer's calls must be in one message.
		if n := len(out.Messages); n > 0 && out.Messages[n-1].Role == role {
			out.Messages[n-1].Content = append(out.Messages[n-1].Content, blocks...)
			continue
		}
		out.Messages = append(out.Messages, blockMessage{Role: role, Content: blocks})
	}
	for _, t := range r.Tools {
		out.Tools = append(out.Tools, blockTool(t))
	}
	return &out
}

func blocksOf(m *Message) (role string, blocks []block) {
	if strings.TrimSpace(m.Text) != "" { // the API refuses blank text
		blocks = append(blocks, block{Type: "text", Text: m.Text})
	}
	for _, c := range m.Calls {
		blocks = append(blocks, block{Type: "tool_use", ID: c.ID, Name: c.Name, Input: c.Args})
	}
	for _, r := range m.Results {
		var content any = r.Output
		if r.Picture != nil {
			content = []block{{Type: "text", Text: r.Output}, {Type: "image", Source: &blockSource{Type: "base64", MediaType: pictureType, Data: r.Picture}}}
		}
		blocks = append(blocks, block{Type: "tool_result", UseID: r.ID, Content: content, Failed: r.Failed})
	}
	if m.Role == Assistant {
		return string(Assistant), blocks
	}
	return string(User), blocks
}

func (messages) decoder(text func(string)) decoder {
	return &messagesDecoder{collector: collector{text: text}, calling: map[int]*partCall{}}
}

type messagesDecoder struct {
	collector
	calling map[int]*partCall // by the index of their blocks
}

type messagesEvent struct {
	Type    string `json:"type"`
	Index   int    `json:"index"`
	Message struct {
		Usage messagesUsage `json:"usage"`
	} `json:"message"`
	Block block `json:"content_block"`
	Delta struct {
		Type   string `json:"type"`
		Text   string `json:"text"`
		JSON   string `json:"partial_json"`
		Reason string `json:"stop_reason"`
	} `json:"delta"`
	Usage *messagesUsage `json:"usage"`
	Error *apiError      `json:"error"`
}

type messagesUsage struct {
	Input  int64 `json:"input_tokens"`
	Write  int64 `json:"cache_creation_input_tokens"`
	Read   int64 `json:"cache_read_input_tokens"`
	Output int64 `json:"output_tokens"`
}

func (d *messagesDecoder) event(data []byte) error {
	var e messagesEvent
	if err := json.Unmarshal(data, &e); err != nil {
		return fmt.Errorf("an event of the answer is not JSON: %w", err)
	}
	switch e.Type {
	case "message_start":
		d.count(&e.Message.Usage)
	case "content_block_start":
		return d.begin(&e)
	case "content_block_delta":
		return d.delta(&e)
	case "message_delta":
		if e.Usage != nil {
			d.count(e.Usage)
		}
		d.stopped(e.Delta.Reason)
	case "message_stop":
		d.done = true
	case "error":
		if e.Error == nil {
			e.Error = &apiError{Type: "error"}
		}
		return e.Error
	}
	return nil
}

func (d *messagesDecoder) whole(data []byte) error {
	var m struct {
		Type    string        `json:"type"`
		Content []block       `json:"content"`
		Reason  string        `json:"stop_reason"`
		Usage   messagesUsage `json:"usage"`
		Error   *apiError     `json:"error"`
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return errWhole
	}
	if m.Error != nil {
		return m.Error
	}
	d.count(&m.Usage)
	for i := range m.Content {
		if err := d.begin(&messagesEvent{Index: i, Block: m.Content[i]}); err != nil {
			return err
		}
	}
	d.stopped(m.Reason)
	d.done = m.Type == "message"
	return nil
}

// stopped records why the model stopped.
func (d *messagesDecoder) stopped(reason string) {
	switch reason {
	case "max_tokens", "model_context_window_exceeded":
		d.stop = Length
	case "refusal":
		d.stop = Refused
	}
}

// count takes over the latest counts: those of a message_delta are cumulative.
func (d *messagesDecoder) count(u *messagesUsage) {
	if in := u.Input + u.Write + u.Read; in > 0 {
		d.usage.Input = in
	}
	d.usage.Output = max(d.usage.Output, u.Output)
}

func (d *messagesDecoder) begin(e *messagesEvent) error {
	switch e.Block.Type {
	case "text":
		return d.say(e.Block.Text)
	case "tool_use":
		c, err := d.call(len(d.calls))
		if err != nil {
			return err
		}
		c.id, c.name = e.Block.ID, e.Block.Name
		d.calling[e.Index] = c
		if in := string(e.Block.Input); in != "" && in != "{}" {
			return c.write(&d.collector, in)
		}
	}
	return nil
}

func (d *messagesDecoder) delta(e *messagesEvent) error {
	switch e.Delta.Type {
	case "text_delta":
		return d.say(e.Delta.Text)
	case "input_json_delta":
		c, ok := d.calling[e.Index]
		if !ok {
			return fmt.Errorf("the answer has arguments for the block %d, which is not a call", e.Index)
		}
		return c.write(&d.collector, e.Delta.JSON)
	}
	return nil
}
