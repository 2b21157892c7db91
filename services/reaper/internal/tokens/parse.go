package tokens

import (
	"bytes"
	"encoding/json"

	"github.com/millrace/millrace/events/frame"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/usage"
)

// maxTokens is the maximum of one report. Others are not counted.
const maxTokens = 1 << 40

// reported returns what an agent reports in a message: see docs/e2a-agent.md.
func reported(text []byte) (c usage.Counters) {
	if !bytes.Contains(text, []byte("runtime_event")) && !bytes.Contains(text, []byte("tool_call")) {
		return c
	}
	var m struct {
		Type   string `json:"type"`
		Input  int64  `json:"input_tokens"`
		Output int64  `json:"output_tokens"`
	}
	if json.Unmarshal(text, &m) != nil {
		return c
	}
	switch valid := func(n int64) bool { return 0 <= n && n <= maxTokens }; {
	case m.Type == "tool_call":
		c.ToolCalls = 1
	case m.Type == "runtime_event" && valid(m.Input) && valid(m.Output):
		c.InputTokens, c.OutputTokens = m.Input, m.Output
	}
	return c
}

// cursor is a place in the record of a runtime.
type cursor struct {
	counted usage.Position // of the fact that has everything before
	after   process.Seq    // the last event that was read
	dec     *frame.Decoder
	start   uint64 // offset of the decoder's first byte
	next    uint64 // offset of the next byte
}

// cursorAt returns a cursor at a position of the record of a generation.
func cursorAt(counted usage.Position, generation uint32) *cursor {
	c := &cursor{counted: counted, dec: frame.NewDecoder(frame.MaxFromRuntime)}
	if counted.Generation == generation {
		c.after, c.start, c.next = counted.After, counted.Offset, counted.Offset
	}
	return c
}

// add reads an event. It returns what was reported in it, and, if that is anything, the offset behind the last report.
func (c *cursor) add(e *process.Event) (sum usage.Counters, offset uint64) {
	c.after = e.Seq
	w, ok := e.Body.(process.Wrote)
	if !ok || w.Stream != process.Stdout {
		return sum, 0
	}
	data, at := w.Data, w.Offset
	if at < c.next {
		skipped := min(c.next-at, uint64(len(data)))
		data, at = data[skipped:], at+skipped
	}
	if len(data) == 0 {
		return sum, 0
	}
	if at > c.next { // a part of the record is lost
		c.dec, c.start = frame.NewDecoder(frame.MaxFromRuntime), at
		c.dec.Resync()
	}
	c.next = at + uint64(len(data))
	for f, err := range c.dec.Feed(data) {
		if err != nil || f.Kind != frame.Text {
			continue
		}
		if got := reported(f.Payload); got != (usage.Counters{}) {
			sum, offset = sum.Add(got), c.start+uint64(f.End)
		}
	}
	return sum, offset
}
