package ndjson

import (
	"bytes"
	"strconv"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/textenc"
)

// encoder writes one command's stream.
type encoder struct {
	id    process.ID
	after process.Seq // the last event given; all of its output is sent or held
	pulse textenc.Pulse
	raw   bool // output goes out as it comes
	skip  int  // lines that the client has, of a stream begun anew
	held  [process.PTY + 1]output
}

// newEncoder gives an encoder that says something every so often (0: never) and
// leaves out the first skip lines. The lines of a record are always the same,
// however its events come, so that a number of them is a place.
func newEncoder(id process.ID, keepalive time.Duration, skip int) *encoder {
	return &encoder{id: id, pulse: textenc.NewPulse(keepalive), skip: skip}
}

// AppendEvent appends what a client of /commands wants to know of e.
func (n *encoder) AppendEvent(dst []byte, e process.Event) ([]byte, error) {
	before := len(dst)
	n.after = e.Seq
	dst = n.event(dst, &e)
	if n.skip > 0 {
		dst = n.leaveOut(dst, before)
	}
	if len(dst) > before {
		n.pulse.Sent()
	}
	return dst, nil
}

// leaveOut takes out of dst[from:] the lines that are to be skipped.
func (n *encoder) leaveOut(dst []byte, from int) []byte {
	rest := dst[from:]
	for n.skip > 0 && len(rest) > 0 {
		rest = rest[bytes.IndexByte(rest, '\n')+1:]
		n.skip--
	}
	return append(dst[:from], rest...)
}

func (n *encoder) event(dst []byte, e *process.Event) []byte {
	switch b := e.Body.(type) {
	case process.Wrote:
		dst = n.wrote(dst, &b)
	case process.Accepted:
		n.raw = b.Spec.Stdin || b.Spec.PTY != nil
	case process.Started:
		dst = append(dst, `{"type":"start","pid":`...)
		dst = strconv.AppendUint(dst, uint64(b.PID), 10)
		dst = append(dst, `,"process":`...)
		dst = textenc.AppendString(dst, string(n.id))
		dst = append(dst, "}\n"...)
	case process.Truncated:
		dst = append(n.flush(dst, b.Stream), `{"type":"truncated","stream":"`...)
		dst = append(dst, b.Stream.String()...)
		dst = append(dst, `","dropped":`...)
		dst = append(strconv.AppendUint(dst, b.Dropped, 10), "}\n"...)
	case process.Gap:
		dst = append(n.flushAll(dst), `{"type":"gap","from":`...)
		dst = strconv.AppendUint(dst, b.From, 10)
		dst = append(dst, `,"to":`...)
		dst = strconv.AppendUint(dst, b.To, 10)
		dst = append(dst, `,"reason":`...)
		dst = append(textenc.AppendString(dst, b.Reason), "}\n"...)
	case process.Failed:
		dst = append(dst, `{"type":"error","error_code":`...)
		dst = textenc.AppendString(dst, textenc.Code(kind.Kind(b.Kind)))
		dst = append(dst, `,"message":`...)
		dst = append(textenc.AppendString(dst, b.Message), "}\n"...)
	case process.Finished:
		dst = appendEnd(n.flushAll(dst), &b.Exit)
	case process.StdinAcked, process.Resized, process.Signaled, process.Exited, process.Lost:
		// The record tells those; what matters of Exited and Lost, Finished says.
	}
	return dst
}

// appendEnd spells an end: a code alone where that says all, which includes
// C-038's bare -1 for a timeout.
func appendEnd(dst []byte, x *process.Exit) []byte {
	dst = append(dst, `{"type":"end"`...)
	code, seen := textenc.ExitCode(x)
	if plain := x.Cause == process.CauseExited || x.Cause == process.CauseTimeout || x.Cause == ""; plain && seen && x.Message == "" {
		dst = append(dst, `,"exit_code":`...)
		dst = strconv.AppendInt(dst, int64(code), 10)
	} else {
		dst = textenc.AppendExit(dst, x)
	}
	return append(dst, "}\n"...)
}

// AppendIdle appends a keepalive if the client asked for them and one is due.
func (n *encoder) AppendIdle(dst []byte, _ time.Duration) ([]byte, time.Duration) {
	due, wait := n.pulse.Due(time.Now())
	if due {
		dst = append(textenc.AppendKeepalive(dst, n.after), '\n')
	}
	return dst, wait
}

// AppendEnd appends nothing after the end, else what is held and why there is
// no more. Bytes that begin a rune go out as data_b64: the record has its end,
// and nothing sent here comes again there.
func (n *encoder) AppendEnd(dst []byte, err error) []byte {
	if err == nil {
		return dst
	}
	for s := range n.held {
		dst = n.release(dst, process.Stream(s))
	}
	return append(textenc.AppendLast(dst, err, n.id, n.after), '\n')
}
