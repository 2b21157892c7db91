package interpreter

import (
	"bytes"
	"encoding/json"
	"strconv"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/stream"
	"github.com/millrace/millrace/services/gateway/internal/textenc"
)

// keepalive is how often an execution that prints nothing says that it lives
// (WIRE-E2B 3.5).
const keepalive = 5 * time.Second

// maxLine is the longest line that is taken for one of the kernel's: pictures
// come in one. In the place of a longer one, and of one for which there is no room, it
// is said that there was one.
const (
	maxLine = 32 << 20
	tooLong = "more than 32 MiB is left out here"
	noRoom  = "more than 128 KiB is left out here, as the gateway holds too many of them"
)

// encoder gives a client the lines of one execution: those that its process
// prints, which come out of the sandbox and are believed only as far as they are
// JSON objects.
type encoder struct {
	pulse textenc.Pulse
	room  *stream.Room
	held  []byte // of a line whose end has not come
	skips bool   // up to the end of a line that is too long
	said  []byte // what the process said against its start
	over  bool   // the last line was sent
}

func newEncoder(room *stream.Room) *encoder {
	return &encoder{pulse: textenc.NewPulse(keepalive), room: room}
}

// AppendEvent appends the lines that e completes.
func (n *encoder) AppendEvent(dst []byte, e process.Event) ([]byte, error) {
	before := len(dst)
	switch b := e.Body.(type) {
	case process.Wrote:
		dst = n.wrote(dst, &b)
	case process.Failed:
		dst = n.fail(dst, "KernelNotFound", b.Message)
	case process.Finished:
		if !n.over && b.Exit.Cause == process.CauseSandboxGone {
			return dst, stream.ErrCut // SDKs take this, and only this, for the sandbox's end
		}
		dst = n.fail(dst, "ExecutionEnded", ending(&b.Exit, n.said))
	default:
		// The record tells those.
	}
	if len(dst) > before {
		n.pulse.Sent()
	}
	return dst, nil
}

func (n *encoder) wrote(dst []byte, w *process.Wrote) []byte {
	const enough = 4 << 10
	if w.Stream != process.Stdout {
		n.said = append(n.said, w.Data[:min(len(w.Data), enough-min(len(n.said), enough))]...)
		return dst
	}
	data := w.Data
	for {
		i := bytes.IndexByte(data, '\n')
		if i < 0 {
			break
		}
		l := data[:i]
		if len(n.held) > 0 {
			n.held = append(n.held, l...)
			l = n.held
		}
		if !n.skips {
			dst = n.line(dst, l)
		}
		if n.held = n.held[:0]; cap(n.held) > stream.OwnRoom {
			n.held = nil
		}
		data, n.skips = data[i+1:], false
	}
	switch {
	case n.skips:
	case len(n.held)+len(data) > maxLine:
		dst = n.skip(dst, tooLong)
	case !n.room.Grow(len(n.held) + len(data)):
		dst = n.skip(dst, noRoom)
	default:
		n.held = append(n.held, data...)
	}
	return dst
}

// skip leaves out the line that is held, up to its end, and says why. Python's SDK fails on
// lines of output that do not say when they were printed.
func (n *encoder) skip(dst []byte, why string) []byte {
	n.held, n.skips = nil, true
	if n.over {
		return dst
	}
	dst = append(append(append(dst, `{"type":"stderr","text":"A line of `...), why...), `: write such results to files.\n","timestamp":`...)
	return append(strconv.AppendInt(dst, time.Now().UnixNano(), 10), "}\n"...)
}

func (n *encoder) line(dst, l []byte) []byte {
	if n.over || len(l) < 2 || l[0] != '{' || !json.Valid(l) {
		return dst
	}
	var is struct {
		Type string `json:"type"`
	}
	switch err := json.Unmarshal(l, &is); {
	case err != nil:
		// The SDK says what it makes of it.
	case is.Type == "keepalive":
		return dst // that the process has begun; the client is told that it lives by us
	case is.Type == "end_of_execution":
		n.over = true
	}
	return append(append(dst, l...), '\n')
}

// fail ends an execution that has not said its last word itself.
func (n *encoder) fail(dst []byte, name, value string) []byte {
	if n.over {
		return dst
	}
	n.over = true
	dst = append(dst, `{"type":"error","name":`...)
	dst = textenc.AppendString(dst, name)
	dst = append(dst, `,"value":`...)
	dst = textenc.AppendString(dst, value)
	dst = append(dst, `,"traceback":`...)
	dst = textenc.AppendString(dst, name+": "+value)
	return append(dst, "}\n{\"type\":\"end_of_execution\"}\n"...)
}

func ending(x *process.Exit, said []byte) string {
	text := "the execution was ended: " + string(x.Cause)
	if len(said) > 0 {
		text += ": " + string(bytes.ToValidUTF8(said, []byte("?")))
	}
	return text
}

// AppendIdle appends a keepalive when one is due.
func (n *encoder) AppendIdle(dst []byte, _ time.Duration) ([]byte, time.Duration) {
	n.room.Shrink(len(n.held))
	due, wait := n.pulse.Due(time.Now())
	if due && !n.over {
		dst = append(dst, "{\"type\":\"keepalive\"}\n"...)
	}
	return dst, wait
}

// AppendEnd appends why there is no more where the execution has not ended: it
// goes on, and its record tells the rest.
func (n *encoder) AppendEnd(dst []byte, err error) []byte {
	if err == nil {
		return dst
	}
	return n.fail(dst, "StreamEnded", "the execution goes on, and its record tells the rest: "+kind.Message(err))
}
