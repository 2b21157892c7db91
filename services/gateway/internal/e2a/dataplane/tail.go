package dataplane

import (
	"bytes"
	"context"
	"errors"
	"io"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/record"
	"github.com/millrace/millrace/services/gateway/internal/stream"
)

// limit is how much of a log a client wants: a number of lines, or of bytes.
type limit struct{ lines, bytes int }

// tail reads the end of a log: the outputs of a process in the order of its record. It needs a
// few times maxBytes of memory.
type tail struct {
	limit limit
	last  []byte // the last bytes of the log, with at least one more than the content, or all of it
	ends  [process.PTY + 1]end
}

// end is the number of bytes of an output.
type end struct {
	bytes uint64
	known bool
}

// The windows in which a record is read backwards, in events. An event has up to 64 KiB.
const (
	firstWindow = 64
	maxWindow   = 16 << 10
	windowRatio = 4
	windowBytes = 4 * maxBytes // maximum number of bytes of a window in memory
)

// opener opens a record after a seq. Its error is a *record.RangeError if retention removed what
// follows.
type opener func(ctx context.Context, after process.Seq) (stream.Source, error)

// read reads backwards from the event last until the content and the size of the log are known.
func (t *tail) read(ctx context.Context, last process.Seq, open opener) error {
	for size := process.Seq(firstWindow); last > 0 && !t.done(); size = min(size*windowRatio, maxWindow) {
		after := last - min(last, size)
		src, err := open(ctx, after)
		var lost *record.RangeError
		if errors.As(err, &lost) && lost.Kind == kind.Gone {
			if lost.First == 0 || lost.First > last {
				return nil
			}
			after = 0 // nothing precedes the first event that is left
			src, err = open(ctx, lost.First-1)
		}
		if err != nil {
			return err
		}
		err = t.window(ctx, src, last)
		src.Close()
		if err != nil {
			return err
		}
		last = after
	}
	return nil
}

// window reads events up to last, and puts their output before what t has.
func (t *tail) window(ctx context.Context, src stream.Source, last process.Seq) error {
	var found []byte
	var ends [process.PTY + 1]end
	for src.After() < last {
		batch, err := src.Next(ctx, time.Second)
		for i := range batch {
			if w, ok := batch[i].Body.(process.Wrote); ok && batch[i].Seq <= last {
				if found = append(found, w.Data...); len(found) > windowBytes {
					found = keepLast(found, maxBytes+1)
				}
				ends[w.Stream] = end{w.Offset + uint64(len(w.Data)), true}
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
	}
	t.last = keepLast(append(found, t.last...), maxBytes+1)
	for s := range ends {
		if !t.ends[s].known {
			t.ends[s] = ends[s]
		}
	}
	return nil
}

// keepLast returns the last n bytes of b, without the memory of the others if they are many.
func keepLast(b []byte, n int) []byte {
	if len(b) <= n {
		return b
	}
	return append(b[:0], b[len(b)-n:]...)
}

// done reports whether nothing is missing that the content or the size depends on.
func (t *tail) done() bool {
	sized := t.ends[process.PTY].known || t.ends[process.Stdout].known && t.ends[process.Stderr].known
	if t.limit.bytes > 0 {
		return sized && len(t.last) > t.limit.bytes
	}
	return sized && (len(t.last) > maxBytes || bytes.Count(t.last, []byte{'\n'}) > t.limit.lines)
}

// total returns the size of the log in bytes.
func (t *tail) total() (n uint64) {
	for s := range t.ends {
		n += t.ends[s].bytes
	}
	return n
}

// content returns what the client gets: whole lines, except that the last one may have no end.
func (t *tail) content() []byte {
	n := maxBytes
	if t.limit.bytes > 0 {
		n = t.limit.bytes
	}
	out := t.last
	if t.limit.lines > 0 {
		out = lastLines(out, t.limit.lines)
	}
	if len(out) <= n {
		if len(out) == len(t.last) && uint64(len(out)) < t.total() { // retention removed what precedes it
			return afterLine(out)
		}
		return out
	}
	cut := len(out) - n
	if out[cut-1] == '\n' {
		return out[cut:]
	}
	return afterLine(out[cut:])
}

// lastLines returns the last n lines of b.
func lastLines(b []byte, n int) []byte {
	at := len(b)
	if bytes.HasSuffix(b, []byte{'\n'}) {
		at--
	}
	for ; n > 0; n-- {
		i := bytes.LastIndexByte(b[:at], '\n')
		if i < 0 {
			return b
		}
		if n == 1 {
			return b[i+1:]
		}
		at = i
	}
	return b
}

// afterLine returns b without its first, partial line.
func afterLine(b []byte) []byte {
	_, rest, _ := bytes.Cut(b, []byte{'\n'})
	return rest
}
