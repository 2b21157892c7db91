package dataplane

import (
	"encoding/base64"
	"strconv"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/procs"
	"github.com/millrace/millrace/services/gateway/internal/textenc"
)

// codeOutputLost is the error of a response that lacks output.
const codeOutputLost = "output_lost"

// encoder writes the output of a command as one JSON object: the text, then, if the record is yielded
// a second time, its bytes.
type encoder struct {
	after process.Seq
	begun bool
	bytes bool // the second pass
	text  outputs
	carry []byte // bytes that are not encoded yet: base64 takes three at a time

	code, message string // of the error; empty: none
}

// AppendEvent appends the output of e, and the end of the object with the end of the record.
func (n *encoder) AppendEvent(dst []byte, e process.Event) ([]byte, error) {
	if e.Seq <= n.after && !n.bytes {
		n.bytes = true
		dst = append(n.flush(dst), `","output_b64":"`...)
	}
	n.after = e.Seq
	switch b := e.Body.(type) {
	case process.Wrote:
		if n.bytes {
			return n.appendBytes(dst, b.Data), nil
		}
		head, body := n.text[b.Stream].Feed(b.Data)
		return textenc.AppendEscaped(textenc.AppendEscaped(n.begin(dst), head), body), nil
	case process.Gap:
		n.fail(codeOutputLost, "a part of the output was lost: "+b.Reason)
	case process.Truncated:
		n.fail(codeOutputLost, strconv.FormatUint(b.Dropped, 10)+" bytes of the output were dropped")
	case process.Omitted:
		n.fail(codeOutputLost, "the output is not kept")
	case process.Failed:
		n.fail(textenc.Code(kind.Kind(b.Kind)), b.Message)
	case process.Finished:
		return n.finish(dst, &b.Exit), nil
	default: // nothing that the response shows
	}
	return dst, nil
}

// fail sets the error of the response, unless it has one.
func (n *encoder) fail(code, message string) {
	if n.code == "" {
		n.code, n.message = code, message
	}
}

// begin appends the beginning of the object before its first byte.
func (n *encoder) begin(dst []byte) []byte {
	if n.begun {
		return dst
	}
	n.begun = true
	return append(dst, `{"output":"`...)
}

// flush appends what is held back of the text: the beginnings of runes that have no end.
func (n *encoder) flush(dst []byte) []byte {
	dst = n.begin(dst)
	for s := range n.text {
		dst = textenc.AppendEscaped(dst, n.text[s].Flush())
	}
	return dst
}

func (n *encoder) appendBytes(dst, b []byte) []byte {
	const unit = 3
	if need := unit - len(n.carry); len(n.carry) > 0 {
		if len(b) < need {
			n.carry = append(n.carry, b...)
			return dst
		}
		n.carry = append(n.carry, b[:need]...)
		dst, b = base64.StdEncoding.AppendEncode(dst, n.carry), b[need:]
		n.carry = n.carry[:0]
	}
	whole := len(b) - len(b)%unit
	n.carry = append(n.carry, b[whole:]...)
	return base64.StdEncoding.AppendEncode(dst, b[:whole])
}

// finish appends the end of the object: an exit code only if the process exited.
func (n *encoder) finish(dst []byte, x *process.Exit) []byte {
	dst = n.endOutput(dst)
	switch {
	case x.Code != nil:
		dst = append(dst, `,"exit_code":`...)
		dst = strconv.AppendInt(dst, int64(*x.Code), 10)
	case x.Cause == "":
		n.fail(string(process.CauseSignaled), procs.Ending(x))
	default:
		n.fail(string(x.Cause), procs.Ending(x))
	}
	return n.appendError(dst)
}

func (n *encoder) endOutput(dst []byte) []byte {
	if n.bytes {
		dst = base64.StdEncoding.AppendEncode(dst, n.carry)
	} else {
		dst = n.flush(dst)
	}
	return append(dst, '"')
}

// appendError appends the error, if there is one, and closes the object.
func (n *encoder) appendError(dst []byte) []byte {
	if n.code != "" {
		dst = append(dst, `,"error":`...)
		dst = textenc.AppendString(dst, n.code)
		dst = append(dst, `,"message":`...)
		dst = textenc.AppendString(dst, n.message)
	}
	return append(dst, "}\n"...)
}

// AppendIdle appends nothing: there is no place for it in the middle of a JSON string.
func (n *encoder) AppendIdle(dst []byte, _ time.Duration) ([]byte, time.Duration) { return dst, 0 }

// AppendEnd appends nothing after an orderly end, because the object has its end. Otherwise the
// object ends with the error.
func (n *encoder) AppendEnd(dst []byte, err error) []byte {
	if err == nil {
		return dst
	}
	n.code, n.message = textenc.Code(kind.Of(err)), kind.Message(err)
	return n.appendError(n.endOutput(dst))
}
