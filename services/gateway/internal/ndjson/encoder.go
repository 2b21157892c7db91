package ndjson

import (
	"bytes"
	"strconv"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/textenc"
)

// encoder encodes the stream of one command.
type encoder struct {
	id        process.ID
	after     process.Seq // the last event; all of its output is sent or buffered
	keepalive textenc.KeepaliveTimer
	raw       bool // output is not split at line ends
	skip      int  // number of lines at the start that the client has
	outputs   [process.PTY + 1]output
}

// newEncoder returns an encoder with a keepalive interval (0: none) that omits the first
// skip lines. The lines of a record do not depend on how its events are batched, so a
// number of lines is a position.
func newEncoder(id process.ID, keepalive time.Duration, skip int) *encoder {
	return &encoder{id: id, keepalive: textenc.NewKeepaliveTimer(keepalive), skip: skip}
}

// AppendEvent appends the lines for e.
func (n *encoder) AppendEvent(dst []byte, e process.Event) ([]byte, error) {
	before := len(dst)
	n.after = e.Seq
	dst = n.event(dst, &e)
	if n.skip > 0 {
		dst = n.removeSkipped(dst, before)
	}
	if len(dst) > before {
		n.keepalive.Sent()
	}
	return dst, nil
}

// removeSkipped removes the lines to be skipped from dst[from:].
func (n *encoder) removeSkipped(dst []byte, from int) []byte {
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
	case process.Omitted:
		dst = append(n.flush(dst, b.Stream), `{"type":"omitted","stream":"`...)
		dst = append(dst, b.Stream.String()...)
		dst = append(dst, `","bytes":`...)
		dst = append(strconv.AppendUint(dst, b.Bytes, 10), "}\n"...)
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
		// In the record; Finished covers Exited and Lost.
	}
	return dst
}

// appendEnd appends an end line. It has only a code if that is sufficient, including -1
// for a timeout.
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

// AppendIdle appends a keepalive if the client requested them and one is due.
func (n *encoder) AppendIdle(dst []byte, _ time.Duration) ([]byte, time.Duration) {
	due, wait := n.keepalive.Due(time.Now())
	if due {
		dst = append(textenc.AppendKeepalive(dst, n.after), '\n')
	}
	return dst, wait
}

// AppendEnd appends nothing after an orderly end. Otherwise it appends the buffered output
// and the reason. The beginning of a rune is sent as data_b64: the record has the rest,
// and bytes that are sent here are not sent again there.
func (n *encoder) AppendEnd(dst []byte, err error) []byte {
	if err == nil {
		return dst
	}
	for s := range n.outputs {
		dst = n.release(dst, process.Stream(s))
	}
	return append(textenc.AppendLast(dst, err, n.id, n.after), '\n')
}
