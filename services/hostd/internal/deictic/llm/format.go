package llm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// format is an API: how a request is encoded, and how the events of the answer are decoded.
type format interface {
	path() string
	header(key string) (name, value string)
	encode(e *Endpoint, r *Request) any
	decoder(text func(string)) decoder
}

// pictureType is the media type of pictures.
const pictureType = "image/png"

// decoder collects an answer.
type decoder interface {
	event(data []byte) error // of a stream
	whole(data []byte) error // an answer of an endpoint that does not stream
	end() (Answer, error)
}

// maxAnswer limits the text and the arguments of an answer.
const maxAnswer = 1 << 20

var (
	errCut        = errors.New("the answer ended early")
	errAnswerSize = fmt.Errorf("the answer has more than %d bytes of text", maxAnswer)
	errWhole      = errors.New("the answer is neither a stream of events nor valid JSON")
	errCalls      = fmt.Errorf("the answer has more than %d calls of tools", maxCalls)
)

const maxCalls = 64

// collector is what both decoders collect.
type collector struct {
	text      func(string)
	size      int
	out       strings.Builder
	reasoning strings.Builder
	calls     []*partCall
	usage     Usage
	stop      Stop
	done      bool // the model has stopped
}

type partCall struct {
	id, name string
	args     bytes.Buffer
	extra    json.RawMessage
}

func (c *collector) grow(n int) error {
	if c.size += n; c.size > maxAnswer {
		return errAnswerSize
	}
	return nil
}

func (c *collector) say(s string) error {
	if s == "" {
		return nil
	}
	if err := c.grow(len(s)); err != nil {
		return err
	}
	c.out.WriteString(s)
	if c.text != nil {
		c.text(s)
	}
	return nil
}

func (c *collector) think(s string) error {
	c.reasoning.WriteString(s)
	return c.grow(len(s))
}

// call returns the call at an index, which follows those before it.
func (c *collector) call(i int) (*partCall, error) {
	switch {
	case i >= 0 && i < len(c.calls):
		return c.calls[i], nil
	case len(c.calls) >= maxCalls:
		return nil, errCalls
	case i != len(c.calls):
		return nil, fmt.Errorf("the answer has a call with the index %d after %d calls", i, len(c.calls))
	}
	c.calls = append(c.calls, &partCall{})
	return c.calls[i], nil
}

func (p *partCall) write(c *collector, args string) error {
	p.args.WriteString(args)
	return c.grow(len(args))
}

func (c *collector) end() (Answer, error) {
	if !c.done {
		return Answer{}, errCut
	}
	m := Message{Role: Assistant, Text: c.out.String(), Reasoning: c.reasoning.String()}
	for i, p := range c.calls {
		call := Call{ID: p.id, Name: p.name, Args: bytes.Clone(bytes.TrimSpace(p.args.Bytes())), Extra: p.extra}
		if call.ID == "" {
			call.ID = fmt.Sprint("call_", i)
		}
		if len(call.Args) == 0 {
			call.Args = json.RawMessage("{}")
		}
		if !json.Valid(call.Args) || call.Args[0] != '{' {
			call.Args, call.Bad = json.RawMessage("{}"), true
		}
		m.Calls = append(m.Calls, call)
	}
	return Answer{Message: m, Stop: c.stop, Usage: c.usage}, nil
}

// apiError is an error that a vendor reports within an answer.
type apiError struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

func (e *apiError) Error() string { return strings.TrimSpace(e.Type + " " + e.Message) }
