package screen

// drawing maps the characters of the DEC special graphics set, from '`' on.
var drawing = [...]rune{
	'◆', '▒', '␉', '␌', '␍', '␊', '°', '±', '␤', '␋', '┘', '┐', '┌', '└', '┼', '⎺',
	'⎻', '─', '⎼', '⎽', '├', '┤', '┴', '┬', '│', '≤', '≥', 'π', '≠', '£', '·',
}

// ascii implements sink.
func (s *Screen) ascii(run []byte) {
	set := s.Sets[s.Set]
	if set != 0 || s.Insert || s.NoWrap {
		for _, c := range run {
			s.put(mapped(set, c), 1)
		}
		return
	}
	b := s.buf()
	s.Last = rune(run[len(run)-1])
	for len(run) > 0 {
		if b.x >= int(s.Cols) {
			b.wrap(s.Pen.erased())
		}
		row := b.rows[b.y]
		n := min(len(run), int(s.Cols)-b.x)
		c := s.Pen.cell(0, 1)
		from := b.x
		chars := run[:n]
		for i := range row[from : from+n] {
			at := &row[from+i] // field by field: a copy of c would wait for the store to c.ch
			at.ch, at.fg, at.bg, at.attr, at.width = uint32(chars[i]), c.fg, c.bg, c.attr, c.width
		}
		b.x += n
		heal(row, from)
		heal(row, b.x)
		run = run[n:]
	}
}

func mapped(set, c byte) rune {
	switch {
	case set == '0' && c >= '`' && c <= '~':
		return drawing[c-'`']
	case set == 'A' && c == '#':
		return '£'
	}
	return rune(c)
}

// print implements sink.
func (s *Screen) print(r rune) {
	if r == 0xFEFF { // a byte order mark, which xterm.js drops
		return
	}
	w := widthOf(r)
	if w > 0 {
		s.put(r, w)
		return
	}
	b := s.buf()
	if s.Last == 0 || b.x == 0 {
		return // nothing to combine with
	}
	row := b.rows[b.y]
	x := b.x - 1
	if row[x].width == 0 && x > 0 {
		x--
	}
	s.join(&row[x], r)
}

// wrap moves the cursor to the beginning of the next row.
func (b *buffer) wrap(c cell) {
	b.x = 0
	b.lineFeed(c)
}

// put writes a character of w columns at the cursor.
func (s *Screen) put(r rune, w int) {
	b := s.buf()
	cols := int(s.Cols)
	if w > cols {
		return
	}
	if b.x+w > cols {
		if s.NoWrap {
			b.x = cols - 1
			if w == 2 {
				return
			}
		} else {
			for x := b.x; x < cols; x++ {
				b.rows[b.y][x] = s.Pen.cell(0, 1)
			}
			heal(b.rows[b.y], min(b.x, cols))
			b.wrap(s.Pen.erased())
		}
	}
	row := b.rows[b.y]
	if s.Insert {
		b.insertCells(w, s.Pen.erased())
	}
	from := b.x
	row[from] = s.Pen.cell(uint32(r), uint8(w))
	if w == 2 {
		row[from+1] = s.Pen.cell(0, 0)
	}
	b.x += w
	heal(row, from)
	if b.x < cols {
		heal(row, b.x)
	}
	s.Last = r
}

// scroll moves the rows of the scroll region up by one.
func (b *buffer) scroll(c cell) {
	row := b.rows[b.top]
	copy(b.rows[b.top:], b.rows[b.top+1:b.bottom+1])
	b.rows[b.bottom] = row
	fill(row, c)
}

// scrollDown moves the rows from top to the end of the scroll region down by one.
func (b *buffer) scrollDown(top int, c cell) {
	row := b.rows[b.bottom]
	copy(b.rows[top+1:b.bottom+1], b.rows[top:b.bottom])
	b.rows[top] = row
	fill(row, c)
}

func fill(row []cell, c cell) {
	for i := range row {
		row[i] = c
	}
}

// execute implements sink.
func (s *Screen) execute(c byte) {
	s.Last = 0
	b := s.buf()
	switch c {
	case '\n', '\v', '\f':
		if s.Lines || s.NewLine {
			b.x = 0
		}
		b.lineFeed(s.Pen.erased())
		b.x = min(b.x, int(s.Cols)-1)
	case '\r':
		b.x = 0
	case '\b':
		s.backspace(b)
	case '\t':
		b.tab(s.tabs, 1)
	case 0x0E:
		s.Set = 1
	case 0x0F:
		s.Set = 0
	case 0x84:
		s.index(b)
	case 0x85:
		b.x = 0
		s.index(b)
	case 0x88:
		s.setTab(b, true)
	}
}

func (b *buffer) lineFeed(c cell) {
	if b.y == b.bottom {
		b.scroll(c)
	} else {
		b.y = min(b.y+1, len(b.rows)-1)
	}
}

func (s *Screen) index(b *buffer) {
	s.restrict(b)
	b.lineFeed(s.Pen.erased())
}

func (s *Screen) reverseIndex(b *buffer) {
	s.restrict(b)
	if b.y == b.top {
		b.scrollDown(b.top, s.Pen.erased())
	} else {
		b.y = max(b.y-1, 0)
	}
}

func (s *Screen) backspace(b *buffer) {
	if !s.Reverse {
		s.restrict(b)
		b.x = max(b.x-1, 0)
		return
	}
	if b.x == 0 && b.y > b.top && b.y <= b.bottom {
		b.y--
		b.x = int(s.Cols) - 1
	} else {
		b.x = max(min(b.x, int(s.Cols)-1)-1, 0)
	}
}

// restrict moves the cursor into the area that it may be in.
func (s *Screen) restrict(b *buffer) {
	b.x = max(0, min(b.x, int(s.Cols)-1))
	if s.Origin {
		b.y = max(b.top, min(b.y, b.bottom))
	} else {
		b.y = max(0, min(b.y, int(s.Rows)-1))
	}
}

// moveTo moves the cursor to an absolute position, which is relative to the scroll region in
// origin mode.
func (s *Screen) moveTo(b *buffer, x, y int) {
	if s.Origin {
		y += b.top
	}
	b.x, b.y = x, y
	s.restrict(b)
}

func (b *buffer) tab(tabs []bool, n int) {
	for ; n > 0 && b.x < len(tabs)-1; n-- {
		for b.x++; b.x < len(tabs)-1 && !tabs[b.x]; b.x++ {
		}
	}
}

func (b *buffer) backTab(tabs []bool, n int) {
	b.x = min(b.x, len(tabs)-1)
	for ; n > 0 && b.x > 0; n-- {
		for b.x--; b.x > 0 && !tabs[b.x]; b.x-- {
		}
	}
}

func (s *Screen) setTab(b *buffer, on bool) { s.tabs[min(b.x, int(s.Cols)-1)] = on }

// esc implements sink.
func (s *Screen) esc(inter, final byte) {
	s.Last = 0
	b := s.buf()
	switch inter {
	case 0:
		s.escape(b, final)
	case '(', ')', '*', '+':
		s.designate(int(inter-'('), final)
	case '-', '.', '/':
		s.designate(int(inter-'-')+1, final)
	case '%':
		s.Set = 0
		s.designate(0, 'B')
	case '#':
		if final == '8' {
			b.x, b.y = 0, 0
			for _, row := range b.rows {
				fill(row, s.Pen.cell('E', 1))
			}
		}
	}
}

func (m *modes) designate(set int, final byte) {
	if final != '0' && final != 'A' {
		final = 0
	}
	m.Sets[set] = final
}

func (s *Screen) escape(b *buffer, final byte) {
	switch final {
	case '7':
		s.save(b)
	case '8':
		s.restore(b)
	case 'D':
		s.index(b)
	case 'E':
		b.x = 0
		s.index(b)
	case 'H':
		s.setTab(b, true)
	case 'M':
		s.reverseIndex(b)
	case 'c':
		s.reset()
	case 'n', '}':
		s.Set = 2
	case 'o', '|':
		s.Set = 3
	case '~':
		s.Set = 1
	}
}

func (s *Screen) save(b *buffer) {
	b.saved = place{X: uint16(b.x), Y: uint16(b.y), Pen: s.Pen, Sets: s.Sets, Set: s.Set}
}

func (s *Screen) restore(b *buffer) {
	b.x, b.y = int(b.saved.X), int(b.saved.Y)
	s.Pen, s.Sets, s.Set = b.saved.Pen, b.saved.Sets, b.saved.Set
	s.restrict(b)
}

// osc implements sink.
func (s *Screen) osc(data []byte) {
	s.Last = 0
	if len(data) >= 2 && (data[0] == '0' || data[0] == '2') && data[1] == ';' {
		s.title = string(data[2:])
	}
}
