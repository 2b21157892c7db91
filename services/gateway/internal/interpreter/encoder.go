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

// keepalive is the interval of keepalives while an execution prints nothing, the same as
// E2B's.
const keepalive = 5 * time.Second

// maxLine is the maximum length of a kernel's line: a picture is one line. A longer line,
// or one beyond the budget, is replaced by a note about the omission.
const (
	maxLine    = 32 << 20
	tooLong    = "more than 32 MiB is left out here"
	overBudget = "more than 128 KiB is left out here, as the gateway holds too many of them"
)

// encoder sends the lines of one execution to a client. The lines are printed by a process
// in the sandbox, so they are passed on only if they are JSON objects.
type encoder struct {
	keepalive textenc.KeepaliveTimer
	budget    *stream.Budget
	partial   []byte // a line whose end has not arrived
	skipping  bool   // discard up to the end of a line that is too long
	stderr    []byte // stderr of the process, the reason if it failed to start
	ended     bool   // the last line was sent
}

func newEncoder(budget *stream.Budget) *encoder {
	return &encoder{keepalive: textenc.NewKeepaliveTimer(keepalive), budget: budget}
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
		if !n.ended && b.Exit.Cause == process.CauseSandboxGone {
			return dst, stream.ErrCut // the only thing that SDKs take for the sandbox's end
		}
		dst = n.fail(dst, "ExecutionEnded", ending(&b.Exit, n.stderr))
	default:
		// They are in the record.
	}
	if len(dst) > before {
		n.keepalive.Sent()
	}
	return dst, nil
}

func (n *encoder) wrote(dst []byte, w *process.Wrote) []byte {
	const enough = 4 << 10
	if w.Stream != process.Stdout {
		n.stderr = append(n.stderr, w.Data[:min(len(w.Data), enough-min(len(n.stderr), enough))]...)
		return dst
	}
	data := w.Data
	for {
		i := bytes.IndexByte(data, '\n')
		if i < 0 {
			break
		}
		l := data[:i]
		if len(n.partial) > 0 {
			n.partial = append(n.partial, l...)
			l = n.partial
		}
		if !n.skipping {
			dst = n.line(dst, l)
		}
		if n.partial = n.partial[:0]; cap(n.partial) > stream.BaseBudget {
			n.partial = nil
		}
		data, n.skipping = data[i+1:], false
	}
	switch {
	case n.skipping:
	case len(n.partial)+len(data) > maxLine:
		dst = n.skip(dst, tooLong)
	case !n.budget.Grow(len(n.partial) + len(data)):
		dst = n.skip(dst, overBudget)
	default:
		n.partial = append(n.partial, data...)
	}
	return dst
}

// skip discards the pending line up to its end, and reports why. Python's SDK requires a
// timestamp on lines of output.
func (n *encoder) skip(dst []byte, why string) []byte {
	n.partial, n.skipping = nil, true
	if n.ended {
		return dst
	}
	dst = append(append(append(dst, `{"type":"stderr","text":"A line of `...), why...), `: write such results to files.\n","timestamp":`...)
	return append(strconv.AppendInt(dst, time.Now().UnixNano(), 10), "}\n"...)
}

func (n *encoder) line(dst, l []byte) []byte {
	if n.ended || len(l) < 2 || l[0] != '{' || !json.Valid(l) {
		return dst
	}
	var is struct {
		Type string `json:"type"`
	}
	switch err := json.Unmarshal(l, &is); {
	case err != nil:
		// Left to the SDK.
	case is.Type == "keepalive":
		return dst // only reports that the process has started; the gateway sends its own keepalives
	case is.Type == "end_of_execution":
		n.ended = true
	}
	return append(append(dst, l...), '\n')
}

// fail ends an execution that has not ended by itself.
func (n *encoder) fail(dst []byte, name, value string) []byte {
	if n.ended {
		return dst
	}
	n.ended = true
	dst = append(dst, `{"type":"error","name":`...)
	dst = textenc.AppendString(dst, name)
	dst = append(dst, `,"value":`...)
	dst = textenc.AppendString(dst, value)
	dst = append(dst, `,"traceback":`...)
	dst = textenc.AppendString(dst, name+": "+value)
	return append(dst, "}\n{\"type\":\"end_of_execution\"}\n"...)
}

func ending(x *process.Exit, stderr []byte) string {
	text := "the execution was ended: " + string(x.Cause)
	if len(stderr) > 0 {
		text += ": " + string(bytes.ToValidUTF8(stderr, []byte("?")))
	}
	return text
}

// AppendIdle appends a keepalive when one is due.
func (n *encoder) AppendIdle(dst []byte, _ time.Duration) ([]byte, time.Duration) {
	n.budget.Shrink(len(n.partial))
	due, wait := n.keepalive.Due(time.Now())
	if due && !n.ended {
		dst = append(dst, "{\"type\":\"keepalive\"}\n"...)
	}
	return dst, wait
}

// AppendEnd reports why the stream ends before the execution, which continues: its record
// has the rest.
func (n *encoder) AppendEnd(dst []byte, err error) []byte {
	if err == nil {
		return dst
	}
	return n.fail(dst, "StreamEnded", "the execution continues and its record has the rest: "+kind.Message(err))
}
