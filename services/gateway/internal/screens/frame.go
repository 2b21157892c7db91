package screens

import (
	"bytes"
	"strconv"
	"sync"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/screen"
	"github.com/millrace/millrace/services/gateway/internal/textenc"
)

// frame is a screen as JSON. It is immutable, and shared by all watchers. So is what differs from the frame
// before it: most watchers have that one, so that it is encoded once and not for each of them.
type frame struct {
	before process.Seq // of the frame from which it was made; 0: none
	change sync.Once
	diff   []byte

	seq, last  process.Seq
	cols, rows int
	title      string
	alt        bool
	cursor     []byte
	lines      [][]byte
	end        *process.Exit
}

// frameOf returns the frame of a screen. Rows that are equal to those of the previous frame,
// which may be nil, share their memory.
func frameOf(f *folded, before *frame) *frame {
	s := f.screen
	out := &frame{seq: f.seq, last: f.last, title: s.Title(), alt: s.Alternate(), end: f.end}
	out.cols, out.rows = s.Size()
	if before != nil && before.cols == out.cols && before.rows == out.rows {
		out.before = before.seq
	}
	x, y, visible := s.Cursor()
	out.cursor = appendCursor(nil, x, y, visible)
	out.lines = make([][]byte, out.rows)
	var buf []byte
	for y := range out.lines {
		buf = appendLine(buf[:0], s, y)
		if before != nil && y < len(before.lines) && bytes.Equal(buf, before.lines[y]) {
			out.lines[y] = before.lines[y]
		} else {
			out.lines[y] = bytes.Clone(buf)
		}
	}
	return out
}

func appendCursor(dst []byte, x, y int, visible bool) []byte {
	dst = appendInt(dst, `{"x":`, x)
	dst = appendInt(dst, `,"y":`, y)
	dst = append(dst, `,"visible":`...)
	return append(strconv.AppendBool(dst, visible), '}')
}

func appendInt(dst []byte, name string, n int) []byte {
	return strconv.AppendInt(append(dst, name...), int64(n), 10)
}

func appendSeq(dst []byte, name string, n process.Seq) []byte {
	return strconv.AppendUint(append(dst, name...), n, 10)
}

// appendLine appends a row: its groups of cells with one style. A group has "w", its number of
// columns, if that is not the number of its code points.
func appendLine(dst []byte, s *screen.Screen, y int) []byte {
	dst = append(dst, '[')
	first := true
	s.Row(y, func(r *screen.Run) {
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = append(dst, `{"t":`...)
		dst = textenc.AppendText(dst, r.Text)
		if r.Cols != r.Chars {
			dst = appendInt(dst, `,"w":`, r.Cols)
		}
		if r.FG != 0 {
			dst = r.FG.AppendJSON(append(dst, `,"f":`...))
		}
		if r.BG != 0 {
			dst = r.BG.AppendJSON(append(dst, `,"b":`...))
		}
		if r.Attr != 0 {
			dst = appendInt(dst, `,"a":`, int(r.Attr))
		}
		dst = append(dst, '}')
	})
	return append(dst, ']')
}

// screen returns the whole screen.
func (f *frame) screen() []byte {
	dst := appendSeq(nil, `{"seq":`, f.seq)
	dst = appendSeq(dst, `,"last":`, f.last)
	dst = strconv.AppendBool(append(dst, `,"ended":`...), f.end != nil)
	dst = appendInt(dst, `,"cols":`, f.cols)
	dst = appendInt(dst, `,"rows":`, f.rows)
	dst = f.appendHead(dst)
	dst = append(dst, `,"lines":[`...)
	for y, l := range f.lines {
		if y > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, l...)
	}
	return append(dst, "]}"...)
}

func (f *frame) appendHead(dst []byte) []byte {
	dst = textenc.AppendString(append(dst, `,"title":`...), f.title)
	dst = strconv.AppendBool(append(dst, `,"alt":`...), f.alt)
	return append(append(dst, `,"cursor":`...), f.cursor...)
}

// changes returns what differs from the frame before, which has the same size.
func (f *frame) changes(before *frame) []byte {
	if before.seq == 0 || before.seq != f.before {
		return f.rowsSince(before)
	}
	f.change.Do(func() { f.diff = f.rowsSince(before) })
	return f.diff
}

// rowsSince returns what differs from the frame before, which has the same size.
func (f *frame) rowsSince(before *frame) []byte {
	dst := appendSeq(nil, `{"seq":`, f.seq)
	dst = f.appendHead(dst)
	dst = append(dst, `,"rows":{`...)
	first := true
	for y, l := range f.lines {
		if y < len(before.lines) && same(l, before.lines[y]) {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = append(strconv.AppendInt(append(dst, '"'), int64(y), 10), `":`...)
		dst = append(dst, l...)
	}
	return append(dst, "}}"...)
}

// same reports whether two rows are equal; they usually share memory then.
func same(a, b []byte) bool { return &a[0] == &b[0] || bytes.Equal(a, b) }

// appendEnd appends how the process ended. The status is "until" if it has not, and the reader may see no
// later event.
func appendEnd(dst []byte, f *frame) []byte {
	dst = append(appendSeq(dst, `{"seq":`, f.seq), `,"status":`...)
	if f.end == nil {
		return append(dst, `"until","code":null}`...)
	}
	dst = textenc.AppendString(dst, statusOf(f.end))
	dst = append(dst, `,"code":`...)
	if code, seen := textenc.ExitCode(f.end); seen {
		dst = strconv.AppendInt(dst, int64(code), 10)
	} else {
		dst = append(dst, "null"...)
	}
	return append(dst, '}')
}

// statusOf returns the cause of an end; it is lost if nothing is known.
func statusOf(x *process.Exit) string {
	if x.Cause == process.CauseHostLost || x.Cause == process.CauseShimLost {
		return "lost"
	}
	return string(x.Cause)
}
