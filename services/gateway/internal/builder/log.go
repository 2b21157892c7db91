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

func (r *run) line(level build.Level, text string) build.Line {
	return build.Line{Time: time.Now(), Level: level, Text: text}
}

func (r *run) mark() build.Mark { return r.current().Mark }

func (r *run) logged(level build.Level, text string) build.Logged {
	return build.Logged{Lines: []build.Line{r.line(level, text)}, Mark: r.mark()}
}

// logLine adds a line to the log.
func (r *run) logLine(ctx context.Context, text string) error {
	return r.append(ctx, r.logged(build.Info, text))
}

// log adds lines, together with the position that they reach in the step's process record.
func (r *run) log(ctx context.Context, mark build.Mark, lines ...build.Line) error {
	return r.append(ctx, build.Logged{Lines: lines, Mark: mark})
}

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

// flush logs the collected lines.
func (r *run) flush(ctx context.Context, o *output) error {
	lines, size := o.lines, o.size
	o.lines, o.size = nil, 0
	had := r.current().Lines
	full := had >= maxLines || r.bytes >= maxBytes
	if r.bytes += size; full {
		return nil
	}
	if had+len(lines) >= maxLines || r.bytes >= maxBytes {
		lines = append(lines[:min(len(lines), maxLines-had-1)], r.line(build.Warn, "The log is full: later output is omitted"))
	}
	for ; len(lines) > flushLines; lines = lines[flushLines:] { // after a crash here the successor logs some lines again
		if err := r.log(ctx, r.mark(), lines[:flushLines]...); err != nil {
			return err
		}
	}
	return r.log(ctx, o.mark, lines...)
}
