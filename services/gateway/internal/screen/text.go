package screen

import "unicode/utf8"

// maxLine is the length at which [Text] ends a line.
const maxLine = 4 << 10

// Text splits output into lines of plain text, without escape sequences. A carriage return and
// a movement of the cursor to another row end a line, too. The zero value is ready to use.
type Text struct {
	// Line is called for each line that is not empty; the line is valid until it returns.
	Line func(line []byte)

	seq  sequences
	line []byte
}

// Write splits output.
func (t *Text) Write(p []byte) { t.seq.write(p, t) }

// Pending returns the line that has not ended.
func (t *Text) Pending() []byte { return t.line }

// Flush ends the line.
func (t *Text) Flush() {
	if len(t.line) > 0 {
		t.Line(t.line)
		t.line = t.line[:0]
	}
}

func (t *Text) room(n int) {
	if len(t.line)+n > maxLine {
		t.Flush()
	}
}

// ascii implements sink.
func (t *Text) ascii(run []byte) {
	for len(run) > 0 {
		t.room(1)
		n := min(len(run), maxLine-len(t.line))
		t.line = append(t.line, run[:n]...)
		run = run[n:]
	}
}

// print implements sink.
func (t *Text) print(r rune) {
	t.room(utf8.UTFMax)
	t.line = utf8.AppendRune(t.line, r)
}

// execute implements sink.
func (t *Text) execute(c byte) {
	switch c {
	case '\n', '\r', '\v', '\f', 0x84, 0x85:
		t.Flush()
	case '\t':
		t.ascii([]byte{c})
	case '\b':
		if n := len(t.line); n > 0 {
			_, size := utf8.DecodeLastRune(t.line)
			t.line = t.line[:n-size]
		}
	}
}

// esc implements sink.
func (t *Text) esc(inter, final byte) {
	if inter != 0 {
		return
	}
	switch final {
	case 'D', 'E', 'M', 'c', '8':
		t.Flush()
	}
}

// csi implements sink.
func (t *Text) csi(q *csi, final byte) {
	switch final {
	case 'C':
		t.ascii([]byte{' '})
	case 'A', 'B', 'D', 'E', 'F', 'G', 'H', 'J', 'L', 'M', 'S', 'T', 'd', 'e', 'f', 'r', '`':
		if q.Inter == 0 {
			t.Flush()
		}
	}
}

// osc implements sink.
func (t *Text) osc([]byte) {}
