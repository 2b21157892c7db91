package builder

import (
	"bytes"
	"context"
	"strings"
	"time"

	"github.com/millrace/millrace/events/build"
	"github.com/millrace/millrace/events/process"
)

// Limits of a build's log. What is past them is in the record of the step's
// process only.
const (
	maxLines = 50_000
	maxBytes = 16 << 20
	maxLine  = 16 << 10 // bytes; what is longer is several lines
)

func (r *run) line(level build.Level, text string) build.Line {
	return build.Line{Time: time.Now(), Level: level, Text: text}
}

func (r *run) mark() build.Mark {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state.Mark
}

func (r *run) logged(level build.Level, text string) build.Logged {
	return build.Logged{Lines: []build.Line{r.line(level, text)}, Mark: r.mark()}
}

// say adds a line to the log.
func (r *run) say(ctx context.Context, text string) error {
	return r.append(ctx, r.logged(build.Info, text))
}

// log adds lines, and how far they go in the record of a step's process.
func (r *run) log(ctx context.Context, mark build.Mark, lines ...build.Line) error {
	return r.append(ctx, build.Logged{Lines: lines, Mark: mark})
}

// output makes lines of what a step's process wrote.
type output struct {
	prefix string
	mark   build.Mark
	lines  []build.Line
	tail   []string // the last lines, for people who want to know why it failed
}

const tailLines = 12

func (o *output) wrote(e *process.Event, w *process.Wrote) {
	half, level, name := &o.mark.HalfOut, build.Info, "stdout"
	if w.Stream == process.Stderr {
		half, level, name = &o.mark.HalfErr, build.Error, "stderr"
	}
	for data := w.Data; len(data) > 0; {
		n := bytes.IndexByte(data, '\n')
		whole, skip := n >= 0, 1
		if !whole {
			n, skip = len(data), 0
		}
		if room := maxLine - len(*half); n > room {
			n, whole, skip = room, true, 0
		}
		*half, data = append((*half)[:len(*half):len(*half)], data[:n]...), data[n+skip:]
		if whole {
			o.add(e.Time, level, name, *half)
			*half = nil
		}
	}
}

func (o *output) add(at time.Time, level build.Level, stream string, line []byte) {
	text := strings.ToValidUTF8(string(bytes.TrimSuffix(line, []byte{'\r'})), "\ufffd")
	text = strings.ReplaceAll(text, "\x00", "\ufffd")
	o.lines = append(o.lines, build.Line{Time: at, Level: level, Text: o.prefix + " [" + stream + "]: " + text})
	if o.tail = append(o.tail, text); len(o.tail) > tailLines {
		o.tail = o.tail[1:]
	}
}

// rest adds what has no line end.
func (o *output) rest() {
	now := time.Now()
	if len(o.mark.HalfOut) > 0 {
		o.add(now, build.Info, "stdout", o.mark.HalfOut)
	}
	if len(o.mark.HalfErr) > 0 {
		o.add(now, build.Error, "stderr", o.mark.HalfErr)
	}
	o.mark.HalfOut, o.mark.HalfErr = nil, nil
}

// flush logs what has come.
func (r *run) flush(ctx context.Context, o *output) error {
	lines := o.lines
	o.lines = nil
	size := 0
	for i := range lines {
		size += len(lines[i].Text)
	}
	r.mu.Lock()
	had := r.state.Lines
	r.mu.Unlock()
	full := had >= maxLines || r.bytes >= maxBytes
	if r.bytes += size; full {
		return nil
	}
	if had+len(lines) >= maxLines || r.bytes >= maxBytes {
		lines = append(lines[:min(len(lines), maxLines-had-1)], r.line(build.Warn, "The log is full: what is yet to come is not in it"))
	}
	return r.log(ctx, o.mark, lines...)
}
