package llm

import "encoding/json"

// Role is the author of a message.
type Role string

// The roles.
const (
	User      Role = "user"
	Assistant Role = "assistant"
	Tool      Role = "tool"
)

// Message is a message of a conversation.
type Message struct {
	Role      Role     `json:"role"`
	Text      string   `json:"text,omitempty"`
	Reasoning string   `json:"reasoning,omitempty"` // of an assistant; DeepSeek requires it beside calls
	Calls     []Call   `json:"calls,omitempty"`     // of an assistant
	Results   []Result `json:"results,omitempty"`   // of tools
}

// Call is a model's request to run a tool.
type Call struct {
	ID    string          `json:"id"`
	Name  string          `json:"name"`
	Args  json.RawMessage `json:"args"`            // an object, unless Bad
	Bad   bool            `json:"bad,omitempty"`   // the model's arguments were not an object: Args is empty
	Extra json.RawMessage `json:"extra,omitempty"` // what the vendor requires back unchanged
}

// Result is what a tool returned.
type Result struct {
	ID     string `json:"id"` // of the call
	Output string `json:"output"`
	Failed bool   `json:"failed,omitempty"`

	Picture []byte `json:"-"` // a PNG that the model gets beside Output; nil: none
}

// Declaration describes a tool to the model.
type Declaration struct {
	Name        string
	Description string
	Schema      json.RawMessage // JSON schema of its arguments
}

// Request is what a model is asked.
type Request struct {
	System   string
	Messages []Message
	Tools    []Declaration
}

// Stop is the reason for which a model stopped.
type Stop int

// The reasons.
const (
	Done    Stop = iota // the answer is complete, or ends with calls
	Length              // the limit of tokens
	Refused             // a filter of the vendor
)

// Answer is a model's answer.
type Answer struct {
	Message Message
	Stop    Stop
	Usage   Usage
}

// Usage is the number of tokens of an answer and its request.
type Usage struct {
	Input  int64
	Output int64
}
