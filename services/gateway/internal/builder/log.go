package builder

import (
	"bytes"
	"context"
	"strings"
	"time"

	"github.com/millrace/millrace/events/build"
	"github.com/millrace/millrace/events/process"
)

// Limits of a build's log. Output beyond them is only in the record of the step's process.
const (
	maxLines = 50_000
	maxBytes = 16 << 20
	maxLine  = 16 << 10 // bytes; a longer line is split
)

// A message of the record holds 2 MiB. Lines are logged once they have flushBytes bytes, which
// one more event of the process exceeds by at most its output, 128 KiB, plus the overhead of
// each line; flushLines limits that.
const (
	flushBytes = 256 << 10 // bytes
	flushLines = 20_000
)

// output turns a step's process output into lines.
type output struct {
	prefix string
	mark   build.Mark
	lines  []build.Line
	size   int      // bytes of text in lines
	tail   []string // last lines, for the error message
}

const tailLines = 12

func (o *output) wrote(e *process.Event, w *process.Wrote) {
	partial, level, name := &o.mark.PartialOut, build.Info, "stdout"
	if w.Stream == process.Stderr {
		partial, level, name = &o.mark.PartialErr, build.Error, "stderr"
	}
	for data := w.Data; len(data) > 0; {
		n := bytes.IndexByte(data, '\n')
		whole, skip := n >= 0, 1
		if !whole {
			n, skip = len(data), 0
		}
		if space := maxLine - len(*partial); n > space {
			n, whole, skip = space, true, 0
		}
		*partial, data = append((*partial)[:len(*partial):len(*partial)], data[:n]...), data[n+skip:]
		if whole {
			o.add(e.Time, level, name, *partial)
			*partial = nil
		}
	}
}

func (o *output) add(at time.Time, level build.Level, stream string, raw []byte) {
	text := strings.ToValidUTF8(string(bytes.TrimSuffix(raw, []byte{'\r'})), "\ufffd")
	text = strings.ReplaceAll(text, "\x00", "\ufffd")
	line := build.Line{Time: at, Level: level, Text: o.prefix + " [" + stream + "]: " + text}
	o.lines, o.size = append(o.lines, line), o.size+len(line.Text)
	if o.tail = append(o.tail, text); len(o.tail) > tailLines {
		o.tail = o.tail[1:]
	}
}

// flushPartial adds the incomplete last line of each stream.
func (o *output) flushPartial() {
	now := time.Now()
	if len(o.mark.PartialOut) > 0 {
		o.add(now, build.Info, "stdout", o.mark.PartialOut)
	}
	if len(o.mark.PartialErr) > 0 {
		o.add(now, build.Error, "stderr", o.mark.PartialErr)
	}
	o.mark.PartialOut, o.mark.PartialErr = nil, nil
}

func line(level build.Level, text string) build.Line {
	return build.Line{Time: time.Now(), Level: level, Text: text}
}

// flush logs the collected lines.
func (rec *buildRecord) flush(ctx context.Context, o *output) error {
	lines, size := o.lines, o.size
	o.lines, o.size = nil, 0
	had := rec.current().Lines
	full := had >= maxLines || rec.bytes >= maxBytes
	if rec.bytes += size; full {
		return nil
	}
	if had+len(lines) >= maxLines || rec.bytes >= maxBytes {
		lines = append(lines[:min(len(lines), maxLines-had-1)], line(build.Warn, "The log is full: later output is omitted"))
	}
	for ; len(lines) > flushLines; lines = lines[flushLines:] { // after a crash here the successor logs some lines again
		if err := rec.log(ctx, rec.mark(), lines[:flushLines]...); err != nil {
			return err
		}
	}
	return rec.log(ctx, o.mark, lines...)
}
