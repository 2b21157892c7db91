package connect

import (
	"bytes"
	"time"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/stream"
)

const (
	// manyLines is the number of available lines up to which each is its own event. An
	// event per line costs 40 ns and 45 bytes each: beyond it, throughput would suffer.
	manyLines = 64
	// partialAfter is how long a partial line waits for its end.
	partialAfter = 100 * time.Millisecond
	// maxPartial and maxPartialNever are the sizes at which a partial line is sent as
	// it is: with early flushing, and without. It is also sent when the budget is used
	// up.
	maxPartial      = 64 << 10
	maxPartialNever = 16 << 20
	// maxIdlePartial is the largest buffer that is kept while idle and empty.
	maxIdlePartial = 1 << 10
)

// partialLine is the incomplete line at the end of one stream, and how much of the
// stream was sent to the client.
type partialLine struct {
	buf   []byte
	from  process.Seq // frame of buf's first byte
	sent  uint64      // bytes of the stream sent
	read  uint64      // bytes of the stream in the frames read
	since time.Time   // when buf last grew
}

// lines appends a frame's bytes as data events that end at line ends.
func (e *encoder) lines(dst []byte, s process.Stream, data []byte) []byte {
	h := &e.partials[s-process.Stdout]
	last := bytes.LastIndexByte(data, '\n') + 1
	whole, rest := data[:last], data[last:]
	if last > 0 {
		dst = e.whole(dst, s, whole, rest)
	}
	if len(h.buf)+len(rest) > e.maxPartial() || !e.budget.Grow(e.buffered()+len(rest)) {
		return e.emit(dst, s, rest, true)
	}
	if len(rest) > 0 {
		if len(h.buf) == 0 {
			h.from = e.seq
		}
		h.buf = append(h.buf, rest...)
		h.since = e.clock()
	}
	return dst
}

// whole appends whole lines, each as its own event if there are few.
func (e *encoder) whole(dst []byte, s process.Stream, lines, rest []byte) []byte {
	if bytes.Count(lines, newline) > manyLines {
		return e.emit(dst, s, lines, len(rest) == 0)
	}
	for len(lines) > 0 {
		n := bytes.IndexByte(lines, '\n') + 1
		line := lines[:n]
		lines = lines[n:]
		dst = e.emit(dst, s, line, len(lines)+len(rest) == 0)
	}
	return dst
}

var newline = []byte{'\n'}

// emit appends a data event with the pending partial line and data. frameDone reports that
// this completes the current frame.
func (e *encoder) emit(dst []byte, s process.Stream, data []byte, frameDone bool) []byte {
	h := &e.partials[s-process.Stdout]
	h.sent += uint64(len(h.buf) + len(data))
	waiting := h.buf
	if h.buf = h.buf[:0]; cap(h.buf) > stream.BaseBudget {
		h.buf = nil
	}
	n := e.meta(frameDone)
	return e.wire.data(dst, s, waiting, data, &n)
}

// meta returns the metadata for the event that is about to be appended.
func (e *encoder) meta(frameDone bool) meta {
	at := cursor{seq: e.seq}
	if !frameDone {
		at.seq--
	}
	for i := range e.partials {
		h := &e.partials[i]
		if len(h.buf) > 0 {
			at.seq = min(at.seq, h.from-1)
		}
		at.sent[i] = h.sent
		// A client that resumed with a cursor has bytes of frames not read yet.
		at.partial = at.partial || h.sent > h.read
	}
	at.partial = at.partial || at.seq < e.seq
	e.cursor = at
	return meta{cursor: at, seq: e.seq}
}

// flushPartial appends the partial lines that have waited for at least older.
func (e *encoder) flushPartial(dst []byte, older time.Duration) []byte {
	for i := range e.partials {
		h := &e.partials[i]
		if len(h.buf) > 0 && (older <= 0 || e.clock().Sub(h.since) >= older) {
			dst = e.emit(dst, process.Stdout+process.Stream(i), nil, true)
		}
	}
	return dst
}

// buffered returns the number of pending bytes.
func (e *encoder) buffered() int { return len(e.partials[0].buf) + len(e.partials[1].buf) }

// partialDue returns how long until a partial line must be sent; 0 if there is none.
func (e *encoder) partialDue() time.Duration {
	var due time.Duration
	if e.neverFlush {
		return 0
	}
	for i := range e.partials {
		if h := &e.partials[i]; len(h.buf) > 0 {
			if d := max(partialAfter-e.clock().Sub(h.since), time.Microsecond); due == 0 || d < due {
				due = d
			}
		}
	}
	return due
}

func (e *encoder) maxPartial() int {
	if e.neverFlush {
		return maxPartialNever
	}
	return maxPartial
}

// trim removes the bytes that the client already has from a frame, and records how
// much of the stream it had received before.
func (e *encoder) trim(w *process.Wrote) []byte {
	data := w.Data
	if w.Stream != process.Stdout && w.Stream != process.Stderr {
		return data
	}
	h := &e.partials[w.Stream-process.Stdout]
	h.read = w.Offset + uint64(len(data))
	if w.Offset < h.sent {
		data = data[min(h.sent-w.Offset, uint64(len(data))):]
	} else if len(h.buf) == 0 {
		h.sent = w.Offset // the client resumed in the middle of the record
	}
	return data
}
