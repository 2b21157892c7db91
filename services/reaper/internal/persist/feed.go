package persist

import (
	"encoding/base64"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/millrace/millrace/events/frame"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
)

// message is a message of a conversation in a request.
type message struct {
	ID     string    `json:"id"` // GENERATION.OFFSET, the position that clients of sessions see
	Time   time.Time `json:"time"`
	From   string    `json:"from"` // client, runtime or agent
	Type   string    `json:"type"` // text, binary or output
	Data   *string   `json:"data,omitempty"`
	Base64 string    `json:"data_b64,omitempty"` // of data that is not UTF-8

	offset uint64      // behind the message, in the output of the runtime
	after  process.Seq // seq of the event before the one with the message's last byte
	size   int
}

// Senders of messages.
const (
	fromClient  = "client"
	fromRuntime = "runtime"
	fromAgent   = "agent"
)

// feed decodes the record of a runtime. It begins at an offset that is the end of a frame.
type feed struct {
	generation string
	dec        *frame.Decoder
	start      uint64 // offset of the first byte to decode
	next       uint64 // offset of the next byte
	plain      bool   // the output has no frames: it is that of an agent
}

func newFeed(generation uint32, offset uint64) *feed {
	return &feed{
		generation: strconv.FormatUint(uint64(generation), 10), dec: frame.NewDecoder(frame.MaxFromRuntime),
		start: offset, next: offset,
	}
}

// add returns the messages that end in an event. It returns Gone if a part of the record is lost: what
// follows is still decoded.
func (f *feed) add(e *process.Event) (out []message, err error) {
	w, ok := e.Body.(process.Wrote)
	if !ok || w.Stream != process.Stdout {
		return nil, nil
	}
	data, at := w.Data, w.Offset
	if at < f.next {
		skipped := min(f.next-at, uint64(len(data)))
		data, at = data[skipped:], at+skipped
	}
	if len(data) == 0 {
		return nil, nil
	}
	if at > f.next { // the beginning of what follows may be within a frame
		err = kind.New(kind.Gone, "read conversation", "", "a part of the record is lost")
		f.dec, f.start = frame.NewDecoder(frame.MaxFromRuntime), at
		f.dec.Resync()
	}
	f.next = at + uint64(len(data))
	if f.plain {
		m := message{From: fromAgent, Type: "output", offset: f.next, size: len(data), Time: e.Time.UTC(), after: e.Seq - 1}
		m.ID = f.position(m.offset)
		m.set(data, false)
		return []message{m}, err
	}
	for fr, ferr := range f.dec.Feed(data) {
		if ferr != nil {
			continue
		}
		if m, ok := f.message(&fr); ok {
			m.Time, m.after = e.Time.UTC(), e.Seq-1
			out = append(out, m)
		}
	}
	return out, err
}

// message returns the message in a frame, if there is any.
func (f *feed) message(fr *frame.Frame) (message, bool) {
	m := message{From: fromRuntime, Type: "text", offset: f.start + uint64(fr.End), size: len(fr.Payload)}
	m.ID = f.position(m.offset)
	payload := fr.Payload
	switch fr.Kind {
	case frame.Binary:
		m.Type = "binary"
	case frame.Control:
		c, err := frame.ParseMessage(payload)
		if err != nil || c.Received == nil {
			return m, false
		}
		m.From, payload = fromClient, []byte(*c.Received)
	case frame.Text:
	}
	m.set(payload, fr.Kind == frame.Binary)
	return m, true
}

// position returns the id of the message that ends at an offset.
func (f *feed) position(offset uint64) string {
	return f.generation + "." + strconv.FormatUint(offset, 10)
}

// set sets the data of a message.
func (m *message) set(data []byte, binary bool) {
	if binary || !utf8.Valid(data) {
		m.Base64 = base64.StdEncoding.EncodeToString(data)
		return
	}
	text := string(data)
	m.Data = &text
}
