package convruntime

import (
	"bytes"
	"encoding/json"
	"io"
	"sync"

	"github.com/millrace/millrace/events/frame"
)

// keptBuffer is the size of the buffer that stays between frames.
const keptBuffer = 256 << 10

// output writes frames, one at a time. A write blocks as long as its reader is slow.
type output struct {
	mu  sync.Mutex
	w   io.Writer
	buf []byte
	err error // of the first write that failed; later ones do nothing
}

// send writes a frame.
func (o *output) send(k frame.Kind, payload []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.buf = frame.Append(o.buf[:0], k, payload)
	o.write()
}

func (o *output) control(m frame.Message) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.buf = frame.AppendMessage(o.buf[:0], m)
	o.write()
}

// write writes buf. mu is held.
func (o *output) write() {
	if o.err == nil {
		_, o.err = o.w.Write(o.buf)
	}
	if cap(o.buf) > keptBuffer {
		o.buf = nil
	}
}

// result is a text frame about a command.
type result struct {
	Type string          `json:"type"`
	ID   json.RawMessage `json:"id,omitempty"`
	Data *string         `json:"data,omitempty"`
	Code *int            `json:"exit_code,omitempty"`
}

// stdout sends output of a command. Bytes that are not UTF-8 are replaced.
func (o *output) stdout(id json.RawMessage, data string) {
	o.text(result{Type: "stdout", ID: id, Data: &data})
}

// exit sends the end of a command.
func (o *output) exit(id json.RawMessage, code int) {
	o.text(result{Type: "exit", ID: id, Code: &code})
}

// text sends a value as a text frame.
func (o *output) text(value any) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.Encode(value) //nolint:errcheck // strings, numbers, and an id that was decoded
	o.send(frame.Text, bytes.TrimSuffix(b.Bytes(), []byte("\n")))
}
