package sessions

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/events/frame"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/e2a/body"
	"github.com/millrace/millrace/services/gateway/internal/websocket"
)

// position is a place in what the runtimes of a conversation have sent.
type position struct {
	given      bool   // the client asked for what follows it
	generation uint32 // of the sandbox
	offset     uint64 // in what its runtime has written
}

// parsePosition parses GENERATION.OFFSET; an empty text is the beginning.
func parsePosition(s string) (position, error) {
	if s == "" || s == "0" {
		return position{given: true}, nil
	}
	generation, offset, ok := strings.Cut(s, ".")
	g, err := strconv.ParseUint(generation, 10, 32)
	o, oErr := strconv.ParseUint(offset, 10, 64)
	if !ok || err != nil || oErr != nil {
		return position{}, body.Invalid("after must be a position that the server sent")
	}
	return position{true, uint32(g), o}, nil
}

// encoder encodes the record of a runtime as messages for one client.
type encoder struct {
	attachment string
	generation uint32
	dec        *frame.Decoder
	answered   chan struct{} // closed when the runtime has answered the attachment

	positions bool   // the client wants positions
	delivers  bool   // what the runtime sends is for the client
	skip      uint64 // offset before which nothing is encoded
	begun     bool
	base      uint64 // offset of the first byte that dec got
	next      uint64 // offset of the next byte that dec gets
	sent      uint64 // position behind the last message; 0: none was sent since the last position
}

func newEncoder(attachment string, generation uint32, at position) *encoder {
	n := &encoder{
		attachment: attachment, generation: generation, dec: frame.NewDecoder(frame.MaxFromRuntime), answered: make(chan struct{}),
		positions: at.given, delivers: at.given,
	}
	if at.generation == generation {
		n.skip = at.offset
	}
	return n
}

// AppendEvent implements stream.Encoder.
func (n *encoder) AppendEvent(dst []byte, e process.Event) ([]byte, error) {
	switch b := e.Body.(type) {
	case process.Wrote:
		if b.Stream == process.Stdout {
			return n.wrote(dst, b)
		}
	case process.Gap, process.Truncated:
		return dst, kind.New(kind.Gone, "send record", "", "a part of the record is lost")
	case process.Omitted:
		if b.Stream == process.Stdout {
			return dst, kind.New(kind.Gone, "send record", "", "the sandbox does not keep its output")
		}
	default:
		// Clients see output only.
	}
	return dst, nil
}

// wrote encodes output.
func (n *encoder) wrote(dst []byte, w process.Wrote) ([]byte, error) {
	data, at := w.Data, w.Offset
	if !n.begun && at < n.skip {
		skipped := min(n.skip-at, uint64(len(data)))
		data, at = data[skipped:], at+skipped
		if len(data) == 0 {
			return dst, nil
		}
	}
	if !n.begun {
		n.begun, n.base, n.next = true, at, at
	}
	if at != n.next {
		return dst, kind.New(kind.Gone, "send record", "", "a part of the record is lost")
	}
	n.next += uint64(len(data))
	for f, err := range n.dec.Feed(data) {
		if err != nil {
			continue // the rest of a frame whose beginning is before the first byte
		}
		switch {
		case f.Kind == frame.Control:
			n.control(f.Payload)
		case n.delivers:
			dst = appendMessage(dst, f)
			n.sent = n.base + uint64(f.End)
		}
	}
	return dst, nil
}

// control handles a message of the runtime for the gateway.
func (n *encoder) control(payload []byte) {
	m, err := frame.ParseMessage(payload)
	if err != nil || m.Attached != n.attachment {
		return
	}
	select {
	case <-n.answered:
	default:
		close(n.answered)
	}
	n.delivers = true
}

func appendMessage(dst []byte, f frame.Frame) []byte {
	t := websocket.Text
	if f.Kind == frame.Binary {
		t = websocket.Binary
	}
	at := len(dst)
	return websocket.EndMessage(append(websocket.BeginMessage(dst), f.Payload...), at, t)
}

// AppendIdle implements stream.Encoder: after what was sent it appends the position.
func (n *encoder) AppendIdle(dst []byte, _ time.Duration) ([]byte, time.Duration) {
	if n.positions && n.sent > 0 {
		at := len(dst)
		dst = websocket.BeginMessage(dst)
		dst = append(dst, `{"type":"system","event":"position","after":"`...)
		dst = strconv.AppendUint(dst, uint64(n.generation), 10)
		dst = strconv.AppendUint(append(dst, '.'), n.sent, 10)
		dst = websocket.EndMessage(append(dst, `"}`...), at, websocket.Text)
	}
	n.sent = 0
	return dst, 0
}

// AppendEnd implements stream.Encoder: the end is a close frame.
func (*encoder) AppendEnd(dst []byte, _ error) []byte { return dst }

// system is a message of the gateway itself.
type system struct {
	Type   string `json:"type"`
	Event  string `json:"event"`
	Reason string `json:"reason,omitempty"`
}

// appendCancel appends the message that asks the client to stop.
func appendCancel(dst []byte, reason string) []byte {
	raw, err := json.Marshal(system{"system", "cancel", reason})
	if err != nil { // impossible: all fields are text
		panic(err)
	}
	return append(dst, raw...)
}

// update is the message about rotated secrets.
type update struct {
	Type  string   `json:"type"`
	Event string   `json:"event"`
	Keys  []string `json:"keys"`
}

// appendUpdate appends the message about keys of rotated secrets.
func appendUpdate(dst []byte, keys []string) []byte {
	raw, err := json.Marshal(update{"system", "config_update", keys})
	if err != nil { // impossible: all fields are text
		panic(err)
	}
	return append(dst, raw...)
}
