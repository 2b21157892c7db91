package jsonrpc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
)

// Limits of a message.
const (
	MaxMessage = 16 << 20 // bytes of a message, in either direction
	MaxDepth   = 128      // nested objects and arrays
	MaxID      = 64 << 10 // bytes of an id, as sent
	MaxMethod  = 256      // bytes of a method's name
)

// NoID is the id of an answer to a message that has no readable id.
const NoID = "-1"

// Kind is the kind of a message.
type Kind uint8

// The kinds of messages.
const (
	Request      Kind = iota + 1 // has a method and an id
	Notification                 // has a method and no id
	Response                     // has an id, and a result or an error
)

// Message is a message of a client. Its byte slices refer to the bytes that were parsed.
type Message struct {
	Kind   Kind
	ID     []byte // JSON of the id, as sent; nil for a notification
	Method string
	Params []byte // JSON; nil if absent
}

// Parse parses a message. Its error is an *Error with [CodeInvalidRequest].
func Parse(raw []byte) (Message, error) {
	if len(raw) > MaxMessage {
		return Message{}, Errorf(CodeInvalidRequest, "message of %d bytes, the limit is %d", len(raw), MaxMessage)
	}
	if err := checkDepth(raw); err != nil {
		return Message{}, err
	}
	if !json.Valid(raw) {
		return Message{}, Errorf(CodeInvalidRequest, "the message is not JSON")
	}
	raw = bytes.TrimLeft(raw, space)
	if raw[0] != '{' {
		return Message{}, Errorf(CodeInvalidRequest, "the message is not a JSON object; batches are not supported")
	}
	var m envelope
	if err := m.read(raw); err != nil {
		return Message{}, err
	}
	return m.message()
}

const space = " \t\r\n"

// checkDepth returns an error for a message that is nested too deeply.
func checkDepth(raw []byte) error {
	depth := 0
	for i := 0; i < len(raw); i++ {
		switch raw[i] {
		case '"':
			i = skipString(raw, i) - 1
		case '{', '[':
			if depth++; depth > MaxDepth {
				return Errorf(CodeInvalidRequest, "the message is nested deeper than %d", MaxDepth)
			}
		case '}', ']':
			depth--
		}
	}
	return nil
}

// envelope is the JSON of a message's members; nil if absent.
type envelope struct{ id, method, params, result, err []byte }

// read reads the members of a valid JSON object.
func (m *envelope) read(raw []byte) error {
	for name, value := range Members(raw) {
		var to *[]byte
		switch string(name) {
		case `"id"`:
			to = &m.id
		case `"method"`:
			to = &m.method
		case `"params"`:
			to = &m.params
		case `"result"`:
			to = &m.result
		case `"error"`:
			to = &m.err
		default:
			continue
		}
		if *to != nil {
			return Errorf(CodeInvalidRequest, "the message has the member %s twice", name)
		}
		*to = value
	}
	return nil
}

// message checks the members.
func (m *envelope) message() (Message, error) {
	out := Message{ID: m.id, Params: m.params}
	if m.id != nil {
		if err := checkID(m.id); err != nil {
			return Message{}, err
		}
	}
	switch {
	case m.method != nil:
		if len(m.method) > MaxMethod || m.method[0] != '"' || json.Unmarshal(m.method, &out.Method) != nil {
			return Message{}, Errorf(CodeInvalidRequest, "method must be a string of at most %d bytes", MaxMethod)
		}
		out.Kind = Request
		if m.id == nil {
			out.Kind = Notification
		}
	case m.id != nil && (m.result != nil || m.err != nil):
		out.Kind, out.Params = Response, nil
	default:
		return Message{}, Errorf(CodeInvalidRequest, "the message has no method")
	}
	return out, nil
}

// checkID returns an error unless an id is a string or a 64-bit integer.
func checkID(id []byte) error {
	if len(id) > MaxID {
		return Errorf(CodeInvalidRequest, "id of %d bytes, the limit is %d", len(id), MaxID)
	}
	if id[0] == '"' {
		return nil
	}
	if _, err := strconv.ParseInt(string(id), 10, 64); err != nil {
		return Errorf(CodeInvalidRequest, "id must be a string or an integer")
	}
	return nil
}

// Members yields the names, quoted as sent, and the values of a valid JSON object that begins
// at raw[0].
func Members(raw []byte) func(yield func(name, value []byte) bool) {
	return func(yield func(name, value []byte) bool) {
		for i := skipSpace(raw, 1); raw[i] != '}'; i = skipSpace(raw, i) {
			if raw[i] == ',' {
				i = skipSpace(raw, i+1)
			}
			end := skipValue(raw, i)
			name := raw[i:end]
			i = skipSpace(raw, skipSpace(raw, end)+1) // the colon
			end = skipValue(raw, i)
			if !yield(name, raw[i:end]) {
				return
			}
			i = end
		}
	}
}

func skipSpace(raw []byte, i int) int {
	for raw[i] == ' ' || raw[i] == '\t' || raw[i] == '\r' || raw[i] == '\n' {
		i++
	}
	return i
}

// skipValue returns the index behind the value at raw[i].
func skipValue(raw []byte, i int) int {
	depth := 0
	for {
		switch raw[i] {
		case '"':
			i = skipString(raw, i)
			if depth == 0 {
				return i
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return i // behind a number or a literal
			}
			if depth--; depth == 0 {
				return i + 1
			}
		case ',', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return i
			}
		}
		i++
	}
}

// skipString returns the index behind the string that begins at raw[i], or len(raw) if it does
// not end.
func skipString(raw []byte, i int) int {
	for i++; ; {
		n := bytes.IndexByte(raw[i:], '"')
		if n < 0 {
			return len(raw)
		}
		escapes := 0
		for k := i + n - 1; k >= i && raw[k] == '\\'; k-- {
			escapes++
		}
		i += n + 1
		if escapes%2 == 0 {
			return i
		}
	}
}

// Code is the code of an error.
type Code int

// The codes of errors.
const (
	CodeInvalidRequest Code = -32600 // also an operation that the state does not allow
	CodeMethodNotFound Code = -32601 // a released method that is not offered here
	CodeInvalidParams  Code = -32602
	CodeInternal       Code = -32603 // also a failed start or file operation
	CodeNotFound       Code = -32004 // a file
	CodeAttached       Code = -32010 // the session is attached elsewhere, or not known yet: retry
)

// Error is an error that is sent to the client.
type Error struct {
	Code    Code
	Message string
}

// Errorf returns an error with a message for the client.
func Errorf(code Code, format string, args ...any) error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }
