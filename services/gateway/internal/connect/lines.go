package connect

import (
	"bytes"
	"time"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/stream"
)

const (
	// manyLines is how many lines at hand are still sent one an event. A line an
	// event costs 40 ns and 45 bytes each: past it, throughput would suffer.
	manyLines = 64
	// partialAfter is how long half a line waits for its other half.
	partialAfter = 100 * time.Millisecond
	// maxHalf and maxHalfNever are how long half a line may become before it is
	// sent as it is, when lines may be flushed early and when not. It is also where
	// there is no room for it.
	maxHalf      = 64 << 10
	maxHalfNever = 16 << 20
	// keepHalf is the largest buffer that an empty half keeps in silence.
	keepHalf = 1 << 10
)

// half is the half line that waits at the end of one stream, and how far the
// stream was given to the client.
type half struct {
	buf   []byte
	from  process.Seq // the frame of buf's first byte
	given uint64      // bytes of the stream given
	end   uint64      // bytes of the stream in the frames read
	since time.Time   // when buf last grew
}

// lines appends a frame's bytes as data events that end where lines do.
func (e *encoder) lines(dst []byte, s process.Stream, data []byte) []byte {
	h := &e.halves[s-process.Stdout]
	last := bytes.LastIndexByte(data, '\n') + 1
	whole, rest := data[:last], data[last:]
	if last > 0 {
		dst = e.whole(dst, s, whole, rest)
	}
	if len(h.buf)+len(rest) > e.maxHalf() || !e.room.Grow(e.held()+len(rest)) {
		return e.give(dst, s, rest, true)
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

// whole appends whole lines: one an event if there are few.
func (e *encoder) whole(dst []byte, s process.Stream, lines, rest []byte) []byte {
	if bytes.Count(lines, newline) > manyLines {
		return e.give(dst, s, lines, len(rest) == 0)
	}
	for len(lines) > 0 {
		n := bytes.IndexByte(lines, '\n') + 1
		line := lines[:n]
		lines = lines[n:]
		dst = e.give(dst, s, line, len(lines)+len(rest) == 0)
	}
	return dst
}

var newline = []byte{'\n'}

// give appends a data event with the half that waits and data; frameDone says
// that with it the current frame is given whole.
func (e *encoder) give(dst []byte, s process.Stream, data []byte, frameDone bool) []byte {
	h := &e.halves[s-process.Stdout]
	h.given += uint64(len(h.buf) + len(data))
	waiting := h.buf
	if h.buf = h.buf[:0]; cap(h.buf) > stream.OwnRoom {
		h.buf = nil
	}
	n := e.note(frameDone)
	return e.wire.data(dst, s, waiting, data, &n)
}

// note says where the client is after the event that is about to be appended.
func (e *encoder) note(frameDone bool) note {
	at := place{seq: e.seq}
	if !frameDone {
		at.seq--
	}
	for i := range e.halves {
		h := &e.halves[i]
		if len(h.buf) > 0 {
			at.seq = min(at.seq, h.from-1)
		}
		at.given[i] = h.given
		// A client that came back with a cursor has bytes of frames yet to be read.
		at.cut = at.cut || h.given > h.end
	}
	at.cut = at.cut || at.seq < e.seq
	e.at = at
	return note{at: at, whose: e.seq}
}

// flushHalves appends what waits, at least as long as older.
func (e *encoder) flushHalves(dst []byte, older time.Duration) []byte {
	for i := range e.halves {
		h := &e.halves[i]
		if len(h.buf) > 0 && (older <= 0 || e.clock().Sub(h.since) >= older) {
			dst = e.give(dst, process.Stdout+process.Stream(i), nil, true) //nolint:gosec // 0 or 1
		}
	}
	return dst
}

// held is how many bytes wait.
func (e *encoder) held() int { return len(e.halves[0].buf) + len(e.halves[1].buf) }

// halfDue is how long until a half has waited long enough; 0 if none waits.
func (e *encoder) halfDue() time.Duration {
	var due time.Duration
	if e.never {
		return 0
	}
	for i := range e.halves {
		if h := &e.halves[i]; len(h.buf) > 0 {
			if d := max(partialAfter-e.clock().Sub(h.since), time.Microsecond); due == 0 || d < due {
				due = d
			}
		}
	}
	return due
}

func (e *encoder) maxHalf() int {
	if e.never {
		return maxHalfNever
	}
	return maxHalf
}

// trim leaves out of a frame's bytes what the client has, and notes how far its
// stream was given before it.
func (e *encoder) trim(w *process.Wrote) []byte {
	data := w.Data
	if w.Stream != process.Stdout && w.Stream != process.Stderr {
		return data
	}
	h := &e.halves[w.Stream-process.Stdout]
	h.end = w.Offset + uint64(len(data))
	if w.Offset < h.given {
		data = data[min(h.given-w.Offset, uint64(len(data))):]
	} else if len(h.buf) == 0 {
		h.given = w.Offset // the client went on in the middle of the record
	}
	return data
}
