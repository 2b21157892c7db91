package terminal

import (
	"encoding/base64"
	"encoding/json"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
)

// Types of messages of clients.
const (
	Stdin   = "stdin"
	Resize  = "resize"
	Ping    = "ping"
	Restart = "restart"
)

// Message is a message of a client.
type Message struct {
	Type  string
	Chars []byte       // of Stdin
	Size  process.Size // of Resize
}

// Parse parses a message. Its errors are Invalid.
func Parse(raw []byte) (Message, error) {
	var m struct {
		Type  string  `json:"type"`
		Chars *string `json:"chars"`
		Rows  *int64  `json:"rows"`
		Cols  *int64  `json:"cols"`
	}
	if err := json.Unmarshal(raw, &m); err != nil {
		return Message{}, invalid("the message is not a JSON object with a type, and chars or rows and cols of the right types")
	}
	out := Message{Type: m.Type}
	switch m.Type {
	case Stdin:
		if m.Chars == nil {
			return out, invalid("chars is required")
		}
		var err error
		if out.Chars, err = base64.StdEncoding.DecodeString(*m.Chars); err != nil {
			return out, invalid("chars: must be base64")
		}
	case Resize:
		if !valid(m.Rows) || !valid(m.Cols) {
			return out, invalid("rows and cols: must be between 1 and 16384")
		}
		out.Size = process.Size{Rows: uint32(*m.Rows), Cols: uint32(*m.Cols)}
	case Ping, Restart:
	default:
		return out, invalid("type: must be stdin, resize, ping or restart")
	}
	return out, nil
}

func valid(n *int64) bool { return n != nil && *n >= 1 && *n <= process.MaxWindow }

func invalid(msg string) error { return kind.New(kind.Invalid, "terminal", "", msg) }

// AppendOut appends a frame with output.
func AppendOut(dst, data []byte) []byte {
	dst = append(dst, `{"type":"out","data":"`...)
	dst = base64.StdEncoding.AppendEncode(dst, data)
	return append(dst, `"}`...)
}

// Error returns a frame with an error.
func Error(msg string) []byte {
	raw, err := json.Marshal(struct {
		Type string `json:"type"`
		Data string `json:"data"`
	}{"error", msg})
	if err != nil { // a string always has an encoding
		return nil
	}
	return raw
}
