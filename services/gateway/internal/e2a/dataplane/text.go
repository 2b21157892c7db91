package dataplane

import (
	"unicode/utf8"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/textenc"
)

// outputs are the decoders of a process's outputs.
type outputs [process.PTY + 1]textenc.Decoder

// textCheck finds out whether the output of a record is text.
type textCheck struct {
	decoders outputs
	invalid  bool
}

// add considers the output of an event.
func (c *textCheck) add(e *process.Event) {
	w, ok := e.Body.(process.Wrote)
	if !ok || c.invalid {
		return
	}
	head, body := c.decoders[w.Stream].Feed(w.Data)
	c.invalid = !utf8.Valid(head) || !utf8.Valid(body)
}

// end reports whether all of the output was text.
func (c *textCheck) end() bool {
	for s := range c.decoders {
		c.invalid = c.invalid || len(c.decoders[s].Flush()) > 0
	}
	return !c.invalid
}
