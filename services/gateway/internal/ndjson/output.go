package ndjson

import (
	"bytes"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/textenc"
)

// MaxLine is the maximum number of bytes of an output line in one line of NDJSON. A longer
// line is split between runes into several, of which only the last has the newline.
const MaxLine = 1 << 20

// keepLine is the largest buffer of a partial line that is kept for the next one.
const keepLine = 64 << 10

// output is the output of one stream that was not sent yet.
type output struct {
	partial []byte          // a line without its end
	dec     textenc.Decoder // beginning of a rune, if output is not split at line ends
}

// wrote appends output: whole lines, or everything.
func (n *encoder) wrote(dst []byte, w *process.Wrote) []byte {
	if int(w.Stream) >= len(n.outputs) {
		return dst
	}
	o := &n.outputs[w.Stream]
	if n.raw {
		head, body := o.dec.Feed(w.Data)
		if len(head)+len(body) == 0 {
			return dst
		}
		dst = appendPrefix(dst, w.Stream)
		dst = textenc.AppendEscaped(dst, head)
		dst = textenc.AppendEscaped(dst, body)
		return append(dst, "\"}\n"...)
	}
	data := w.Data
	if len(o.partial) > 0 {
		i := bytes.IndexByte(data, '\n') + 1
		if i == 0 {
			return o.hold(dst, w.Stream, data)
		}
		dst = o.hold(dst, w.Stream, data[:i])
		dst = n.flush(dst, w.Stream)
		data = data[i:]
	}
	for {
		i := bytes.IndexByte(data, '\n')
		if i < 0 {
			break
		}
		dst = appendPrefix(dst, w.Stream)
		dst = textenc.AppendEscaped(dst, data[:i])
		dst = append(dst, "\\n\"}\n"...)
		data = data[i+1:]
	}
	if len(data) == 0 {
		return dst
	}
	return o.hold(dst, w.Stream, data)
}

// hold buffers the beginning of a line and sends the part beyond MaxLine.
func (o *output) hold(dst []byte, s process.Stream, data []byte) []byte {
	o.partial = append(o.partial, data...)
	for len(o.partial) > MaxLine {
		cut := textenc.CutLen(o.partial, MaxLine)
		dst = appendLine(dst, s, o.partial[:cut])
		o.partial = append(o.partial[:0], o.partial[cut:]...)
	}
	return dst
}

// flush sends the buffered output of a stream, which will not be completed.
func (n *encoder) flush(dst []byte, s process.Stream) []byte {
	if int(s) >= len(n.outputs) {
		return dst
	}
	o := &n.outputs[s]
	if len(o.partial) > 0 {
		dst = appendLine(dst, s, o.partial)
		if o.partial = o.partial[:0]; cap(o.partial) > keepLine {
			o.partial = nil
		}
	}
	if torn := o.dec.Flush(); len(torn) > 0 {
		dst = appendLine(dst, s, torn)
	}
	return dst
}

func (n *encoder) flushAll(dst []byte) []byte {
	for s := range n.outputs {
		dst = n.flush(dst, process.Stream(s))
	}
	return dst
}

// release sends the buffered output as it is: its end follows on another stream.
func (n *encoder) release(dst []byte, s process.Stream) []byte {
	o := &n.outputs[s]
	head, body := o.dec.Feed(o.partial)
	o.partial = nil
	if len(head)+len(body) > 0 {
		dst = appendPrefix(dst, s)
		dst = textenc.AppendEscaped(dst, head)
		dst = textenc.AppendEscaped(dst, body)
		dst = append(dst, "\"}\n"...)
	}
	if torn := o.dec.Flush(); len(torn) > 0 {
		dst = append(dst, `{"type":"`...)
		dst = append(dst, s.String()...)
		dst = append(dst, '"')
		dst = append(textenc.AppendData(dst, torn), "}\n"...)
	}
	return dst
}

func appendLine(dst []byte, s process.Stream, line []byte) []byte {
	dst = appendPrefix(dst, s)
	dst = textenc.AppendEscaped(dst, line)
	return append(dst, "\"}\n"...)
}

// appendPrefix appends a line up to its data.
func appendPrefix(dst []byte, s process.Stream) []byte {
	switch s {
	case process.Stdout:
		return append(dst, `{"type":"stdout","data":"`...)
	case process.Stderr:
		return append(dst, `{"type":"stderr","data":"`...)
	case process.PTY:
		return append(dst, `{"type":"pty","data":"`...)
	}
	dst = append(dst, `{"type":"`...)
	dst = append(dst, s.String()...)
	return append(dst, `","data":"`...)
}
