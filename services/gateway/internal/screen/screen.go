package screen

import (
	"strings"
	"unicode/utf8"
)

// Limits of a screen's size.
const (
	MaxCols = 1000
	MaxRows = 300
)

// Size of a screen that has none.
const (
	DefaultCols = 80
	DefaultRows = 24
)

const tabWidth = 8

// Screen is the screen of a terminal. It belongs to one goroutine.
type Screen struct {
	modes
	seq      sequences
	title    string
	tabs     []bool
	bufs     [2]buffer // normal and alternate
	clusters []string  // characters with combining marks, referred to by cells
}

// modes is the part of a Screen's state that has a fixed size, apart from its buffers and its
// parser.
type modes struct {
	Cols, Rows uint16
	Alt        bool // the alternate buffer is shown
	Lines      bool // LF is CR LF
	NewLine    bool // the same by the program's request
	Insert     bool
	Origin     bool
	NoWrap     bool
	Reverse    bool // backspace wraps to the previous row
	Invisible  bool // cursor
	Pen        style
	Sets       [4]byte // character sets G0 to G3; 0: ASCII
	Set        uint8   // the one in use
	Last       rune    // last character printed; 0: something else came after it
}

// place is a position of the cursor with what DECSC saves.
type place struct {
	X, Y uint16
	Pen  style
	Sets [4]byte
	Set  uint8
}

// buffer is one of a screen's two buffers.
type buffer struct {
	rows        [][]cell
	x, y        int // x may be one past the last column: the next character wraps
	top, bottom int // scroll region, inclusive
	saved       place
}

// New returns an empty screen. With lines, LF is treated as CR LF.
func New(cols, rows int, lines bool) *Screen {
	s := &Screen{}
	s.Cols, s.Rows = clampSize(cols, rows)
	s.Lines = lines
	s.reset()
	return s
}

func clampSize(cols, rows int) (uint16, uint16) {
	if cols <= 0 {
		cols = DefaultCols
	}
	if rows <= 0 {
		rows = DefaultRows
	}
	return uint16(min(cols, MaxCols)), uint16(min(rows, MaxRows))
}

func (s *Screen) reset() {
	s.modes = modes{Cols: s.Cols, Rows: s.Rows, Lines: s.Lines}
	s.title, s.clusters = "", nil
	s.tabs = newTabs(int(s.Cols))
	for i := range s.bufs {
		s.bufs[i] = buffer{bottom: int(s.Rows) - 1, rows: newRows(int(s.Rows), int(s.Cols))}
	}
}

func newTabs(n int) []bool {
	tabs := make([]bool, n)
	for i := 0; i < n; i += tabWidth {
		tabs[i] = true
	}
	return tabs
}

func newRows(rows, cols int) [][]cell {
	all := make([]cell, rows*cols)
	for i := range all {
		all[i] = blank
	}
	out := make([][]cell, rows)
	for y := range out {
		out[y] = all[y*cols : (y+1)*cols : (y+1)*cols]
	}
	return out
}

// Write folds output.
func (s *Screen) Write(p []byte) { s.seq.write(p, s) }

// Resize changes the size.
func (s *Screen) Resize(cols, rows int) {
	c, r := clampSize(cols, rows)
	if c == s.Cols && r == s.Rows {
		return
	}
	old := int(s.Cols)
	s.Cols, s.Rows = c, r
	for i := range s.bufs {
		s.bufs[i].resize(int(c), int(r))
	}
	tabs := newTabs(int(c))
	copy(tabs, s.tabs[:min(old, int(c))])
	s.tabs = tabs
}

// resize changes the size of b. Rows below the cursor are removed first, then those at the top.
func (b *buffer) resize(cols, rows int) {
	for len(b.rows) > rows {
		if len(b.rows) > b.y+1 {
			b.rows = b.rows[:len(b.rows)-1]
		} else {
			b.rows = b.rows[1:]
			b.y--
		}
	}
	fresh := newRows(rows, cols)
	for y, row := range b.rows {
		copy(fresh[y], row)
		if cols < len(row) {
			heal(fresh[y], cols)
		}
	}
	b.rows = fresh
	b.x, b.y = min(b.x, cols-1), max(0, min(b.y, rows-1))
	b.top, b.bottom = 0, rows-1
	b.saved.X, b.saved.Y = min(b.saved.X, uint16(cols-1)), min(b.saved.Y, uint16(rows-1))
}

// heal removes the halves of a wide character that a change at column x cut.
func heal(row []cell, x int) {
	if x > 0 && row[x-1].width == 2 && (x == len(row) || row[x].width != 0) {
		row[x-1].ch, row[x-1].width = 0, 1
	}
	if x < len(row) && row[x].width == 0 && (x == 0 || row[x-1].width != 2) {
		row[x].ch, row[x].width = 0, 1
	}
}

// Title returns the title that the program set.
func (s *Screen) Title() string { return s.title }

// Size returns the number of columns and rows.
func (m *modes) Size() (cols, rows int) { return int(m.Cols), int(m.Rows) }

// Alternate reports whether the alternate buffer is shown.
func (m *modes) Alternate() bool { return m.Alt }

// Cursor returns the position of the cursor, and whether it is visible.
func (s *Screen) Cursor() (x, y int, visible bool) {
	b := s.buf()
	return min(b.x, int(s.Cols)-1), b.y, !s.Invisible
}

// Run is a part of a row with one style. If a character of a run is wide, all are.
type Run struct {
	Text   []byte // valid until the next run
	Cols   int
	Chars  int // code points in Text
	FG, BG Color
	Attr   Attr
}

// Row yields the runs of a row, without the blank cells at its end.
func (s *Screen) Row(y int, yield func(*Run)) {
	row := s.buf().rows[y]
	end := len(row)
	for end > 0 && (row[end-1] == blank || row[end-1] == cell{ch: ' ', width: 1}) {
		end--
	}
	var r Run
	wide := false
	for x := range end {
		c := &row[x]
		if c.width == 0 {
			continue
		}
		if r.Cols > 0 && (c.fg != r.FG || c.bg != r.BG || c.attr != r.Attr || wide != (c.width == 2)) {
			yield(&r)
			r = Run{Text: r.Text[:0]}
		}
		if r.Cols == 0 {
			r.FG, r.BG, r.Attr, wide = c.fg, c.bg, c.attr, c.width == 2
		}
		at := len(r.Text)
		r.Text = s.appendText(r.Text, c)
		r.Cols += int(c.width)
		r.Chars += utf8.RuneCount(r.Text[at:])
	}
	if r.Cols > 0 {
		yield(&r)
	}
}

// String returns the rows as plain text.
func (s *Screen) String() string {
	var b strings.Builder
	for y := range s.buf().rows {
		s.Row(y, func(r *Run) { b.Write(r.Text) })
		b.WriteByte('\n')
	}
	return b.String()
}

func (s *Screen) buf() *buffer {
	if s.Alt {
		return &s.bufs[1]
	}
	return &s.bufs[0]
}
