package llm

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
)

// chat is the Chat Completions API.
type chat struct{}

func (chat) path() string { return "/chat/completions" }

func (chat) header(key string) (name, value string) { return "Authorization", "Bearer " + key }

type chatRequest struct {
	Model    string        `json:"model"`
	Messages []chatMessage `json:"messages"`
	Tools    []chatTool    `json:"tools,omitempty"`
	Stream   bool          `json:"stream"`
	Options  struct {
		Usage bool `json:"include_usage"`
	} `json:"stream_options"`
}

type chatMessage struct {
	Role      string     `json:"role"`
	Content   any        `json:"content"` // a string, parts or nil
	Reasoning string     `json:"reasoning_content,omitempty"`
	Calls     []chatCall `json:"tool_calls,omitempty"`
	CallID    string     `json:"tool_call_id,omitempty"`
}

type chatCall struct {
	Index    *int            `json:"index,omitempty"`
	ID       string          `json:"id,omitempty"`
	Type     string          `json:"type,omitempty"`
	Function chatFunction    `json:"function"`
	Extra    json.RawMessage `json:"extra_content,omitempty"`
}

// chatPart is a part of a message: text or image_url.
type chatPart struct {
	Type  string     `json:"type"`
	Text  string     `json:"text,omitempty"`
	Image *chatImage `json:"image_url,omitempty"`
}

type chatImage struct {
	URL string `json:"url"`
}

type chatFunction struct {
	Name string `json:"name,omitempty"`
	Args string `json:"arguments"`
}

type chatTool struct {
	Type     string `json:"type"`
	Function struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
	} `json:"function"`
}

func (chat) encode(e *Endpoint, r *Request) any {
	out := chatRequest{Model: e.Model, Stream: true}
	out.Options.Usage = true
	if r.System != "" {
		out.Messages = append(out.Messages, chatMessage{Role: "system", Content: r.System})
	}
	var pictures []chatPart // results are texts: pictures follow those of an answer as a message of their own
	for i := range r.Messages {
		m := &r.Messages[i]
		if m.Role == Tool {
			for j := range m.Results {
				result := &m.Results[j]
				out.Messages = append(out.Messages, chatMessage{Role: "tool", Content: result.Output, CallID: result.ID})
				if result.Picture != nil {
					pictures = append(pictures, chatPart{Type: "text", Text: "The picture of the call " + result.ID + ":"},
						chatPart{Type: "image_url", Image: &chatImage{URL: "data:" + pictureType + ";base64," + base64.StdEncoding.EncodeToString(result.Picture)}})
				}
			}
			if len(pictures) > 0 && (i+1 == len(r.Messages) || r.Messages[i+1].Role != Tool) {
				out.Messages = append(out.Messages, chatMessage{Role: string(User), Content: pictures})
				pictures = nil
			}
			continue
		}
		msg := chatMessage{Role: string(m.Role), Content: m.Text}
		for _, c := range m.Calls {
			msg.Calls = append(msg.Calls, chatCall{ID: c.ID, Type: "function", Function: chatFunction{Name: c.Name, Args: string(c.Args)}, Extra: c.Extra})
		}
		if len(m.Calls) > 0 && e.Vendor == DeepSeek {
			msg.Reasoning = m.Reasoning
		}
		if m.Text == "" && len(m.Calls) > 0 {
			msg.Content = nil
		}
		out.Messages = append(out.Messages, msg)
	}
	for _, t := range r.Tools {
		d := chatTool{Type: "function"}
		d.Function.Name, d.Function.Description, d.Function.Parameters = t.Name, t.Description, t.Schema
		out.Tools = append(out.Tools, d)
	}
	return &out
}

func (chat) decoder(text func(string)) decoder { return &chatDecoder{collector: collector{text: text}} }

type chatDecoder struct{ collector }

type chatChunk struct {
	Choices []struct {
		Delta   chatDelta `json:"delta"`
		Message chatDelta `json:"message"` // of an answer that is not streamed
		Finish  string    `json:"finish_reason"`
	} `json:"choices"`
	Usage *struct {
		Input  int64 `json:"prompt_tokens"`
		Output int64 `json:"completion_tokens"`
	} `json:"usage"`
	Error *apiError `json:"error"`
}

type chatDelta struct {
	Content   string     `json:"content"`
	Reasoning string     `json:"reasoning_content"`
	Calls     []chatCall `json:"tool_calls"`
}

func (d *chatDecoder) whole(data []byte) error {
	var c chatChunk
	if err := json.Unmarshal(data, &c); err != nil {
		return errWhole
	}
	for i := range c.Choices {
		c.Choices[i].Delta = c.Choices[i].Message
		for j := range c.Choices[i].Delta.Calls {
			c.Choices[i].Delta.Calls[j].Index = &j
		}
	}
	return d.add(&c)
}

func (d *chatDecoder) event(data []byte) error {
	if string(data) == "[DONE]" {
		return nil
	}
	var c chatChunk
	if err := json.Unmarshal(data, &c); err != nil {
		return fmt.Errorf("an event of the answer is not JSON: %w", err)
	}
	return d.add(&c)
}

func (d *chatDecoder) add(c *chatChunk) error {
	if c.Error != nil {
		return c.Error
	}
	if c.Usage != nil {
		d.usage = Usage{Input: max(c.Usage.Input, 0), Output: max(c.Usage.Output, 0)}
	}
	if len(c.Choices) == 0 {
		return nil
	}
	choice := &c.Choices[0]
	if err := d.say(choice.Delta.Content); err != nil {
		return err
	}
	if err := d.think(choice.Delta.Reasoning); err != nil {
		return err
	}
	for i := range choice.Delta.Calls {
		if err := d.delta(&choice.Delta.Calls[i]); err != nil {
			return err
		}
	}
	switch choice.Finish {
	case "":
		return nil
	case "length":
		d.stop = Length
	case "content_filter":
		d.stop = Refused
	}
	d.done = true
	return nil
}

// delta adds a part of a call. Without an index, an id begins another call.
func (d *chatDecoder) delta(p *chatCall) error {
	i := max(len(d.calls)-1, 0)
	switch {
	case p.Index != nil:
		i = *p.Index
	case p.ID != "" && len(d.calls) > 0 && d.calls[i].id != p.ID:
		i = len(d.calls)
	}
	c, err := d.call(i)
	if err != nil {
		return err
	}
	if p.ID != "" {
		c.id = p.ID
	}
	if p.Function.Name != "" {
		c.name = p.Function.Name
	}
	if len(p.Extra) > 0 {
		c.extra = p.Extra
	}
	return c.write(&d.collector, p.Function.Args)
}
