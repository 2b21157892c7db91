package screen

// csi implements sink.
func (s *Screen) csi(q *csi, final byte) {
	last := s.Last
	s.Last = 0
	b := s.buf()
	switch {
	case q.Prefix == '?' && q.Inter == 0:
		s.private(b, q, final)
	case q.Prefix == 0 && q.Inter == 0:
		if !s.cursor(b, q, final) && !s.edit(b, q, final) {
			s.other(b, q, final, last)
		}
	case q.Prefix == 0 && q.Inter == '!' && final == 'p':
		s.softReset(b)
	case q.Prefix == 0 && q.Inter == '\'':
		b.editColumns(q.param(0, 1), final, s.Pen.erased())
	case q.Prefix == 0 && q.Inter == ' ':
		b.shift(q.param(0, 1), final, s.Pen.erased())
	}
}

// cursor moves the cursor and reports whether final is for that.
func (s *Screen) cursor(b *buffer, q *csi, final byte) bool {
	n := q.param(0, 1)
	switch final {
	case 'A', 'F':
		s.restrict(b)
		b.up(n)
	case 'B', 'E':
		s.restrict(b)
		b.down(n)
	case 'C', 'a':
		s.restrict(b)
		b.x = min(b.x+n, int(s.Cols)-1)
	case 'D':
		s.restrict(b)
		b.x = max(b.x-n, 0)
	case 'G', '`':
		s.restrict(b)
		b.x = min(n-1, int(s.Cols)-1)
	case 'H', 'f':
		s.moveTo(b, q.param(1, 1)-1, n-1)
	case 'I':
		b.tab(s.tabs, n)
	case 'Z':
		b.backTab(s.tabs, n)
	case 'd':
		s.restrict(b)
		s.moveTo(b, b.x, n-1)
	case 'e':
		s.restrict(b)
		b.y += n
		s.restrict(b)
	default:
		return false
	}
	if final == 'E' || final == 'F' {
		b.x = 0
	}
	return true
}

func (b *buffer) up(n int) {
	top := 0
	if b.y >= b.top {
		top = b.top
	}
	b.y = max(b.y-n, top)
}

func (b *buffer) down(n int) {
	bottom := len(b.rows) - 1
	if b.y <= b.bottom {
		bottom = b.bottom
	}
	b.y = min(b.y+n, bottom)
}

// edit changes cells and reports whether final is for that.
func (s *Screen) edit(b *buffer, q *csi, final byte) bool {
	n := q.param(0, 1)
	switch final {
	case '@':
		s.restrict(b)
		b.insertCells(n, s.Pen.erased())
	case 'J':
		b.eraseDisplay(q.param(0, 0), s.Pen.erased())
	case 'K':
		b.eraseLine(q.param(0, 0), s.Pen.erased())
	case 'L', 'M':
		s.restrict(b)
		b.editLines(n, final == 'L', s.Pen.erased())
	case 'P':
		s.restrict(b)
		deleteCells(b.rows[b.y], b.x, n, s.Pen.erased())
	case 'S':
		for range min(n, b.bottom-b.top+1) {
			b.scroll(s.Pen.erased())
		}
	case 'T':
		if q.N <= 1 {
			for range min(n, b.bottom-b.top+1) {
				b.scrollDown(b.top, blank)
			}
		}
	case 'X':
		s.restrict(b)
		erase(b.rows[b.y], b.x, min(b.x+n, int(s.Cols)), s.Pen.erased())
	default:
		return false
	}
	return true
}

// insertCells inserts n erased cells at the cursor.
func (b *buffer) insertCells(n int, c cell) {
	row := b.rows[b.y]
	x := min(b.x, len(row)-1)
	n = min(n, len(row)-x)
	heal2(row, x)
	copy(row[x+n:], row[x:])
	fill(row[x:x+n], c)
	heal(row, x)
	heal(row, x+n)
	heal(row, len(row))
}

// heal2 removes a wide character whose second column is x.
func heal2(row []cell, x int) {
	if x > 0 && x < len(row) && row[x].width == 0 {
		row[x-1].ch, row[x-1].width = 0, 1
		row[x].ch, row[x].width = 0, 1
	}
}

func deleteCells(row []cell, x, n int, c cell) {
	n = min(n, len(row)-x)
	copy(row[x:], row[x+n:])
	fill(row[len(row)-n:], c)
	heal(row, x)
	heal(row, len(row)-n)
}

// erase erases columns from to to.
func erase(row []cell, from, to int, c cell) {
	if from >= to {
		return
	}
	fill(row[from:to], c)
	heal(row, from)
	heal(row, to)
}

func (b *buffer) eraseDisplay(how int, c cell) {
	row := b.rows[b.y]
	from, to := 0, 0
	switch how {
	case 0:
		erase(row, b.x, len(row), c)
		from, to = b.y+1, len(b.rows)
	case 1:
		erase(row, 0, min(b.x+1, len(row)), c)
		to = b.y
	case 2:
		to = len(b.rows)
	}
	for _, row := range b.rows[from:to] {
		fill(row, c)
	}
}

func (b *buffer) eraseLine(how int, c cell) {
	row := b.rows[b.y]
	switch how {
	case 0:
		erase(row, b.x, len(row), c)
	case 1:
		erase(row, 0, min(b.x+1, len(row)), c)
	case 2:
		erase(row, 0, len(row), c)
	}
}

// editLines inserts or deletes n rows at the cursor.
func (b *buffer) editLines(n int, insert bool, c cell) {
	if b.y < b.top || b.y > b.bottom {
		return
	}
	for range min(n, b.bottom-b.y+1) {
		if insert {
			b.scrollDown(b.y, c)
			continue
		}
		top := b.top
		b.top = b.y
		b.scroll(c)
		b.top = top
	}
	b.x = 0
}

// editColumns inserts or deletes columns in the scroll region.
func (b *buffer) editColumns(n int, final byte, c cell) {
	if final != '}' && final != '~' || b.y < b.top || b.y > b.bottom {
		return
	}
	y := b.y
	for b.y = b.top; b.y <= b.bottom; b.y++ {
		if final == '}' {
			b.insertCells(n, c)
		} else {
			deleteCells(b.rows[b.y], min(b.x, len(b.rows[b.y])-1), n, c)
		}
	}
	b.y = y
}

// shift moves the contents of the scroll region left or right.
func (b *buffer) shift(n int, final byte, c cell) {
	if final != '@' && final != 'A' || b.y < b.top || b.y > b.bottom {
		return
	}
	x, y := b.x, b.y
	b.x = 0
	for b.y = b.top; b.y <= b.bottom; b.y++ {
		if final == 'A' {
			b.insertCells(n, c)
		} else {
			deleteCells(b.rows[b.y], 0, n, c)
		}
	}
	b.x, b.y = x, y
}

// other handles the remaining sequences.
func (s *Screen) other(b *buffer, q *csi, final byte, last rune) {
	switch final {
	case 'b':
		s.repeat(last, q.param(0, 1))
	case 'g':
		switch q.param(0, 0) {
		case 0:
			s.setTab(b, false)
		case 3:
			clear(s.tabs)
		}
	case 'h', 'l':
		for _, p := range q.Params[:q.N] {
			switch p {
			case 4:
				s.Insert = final == 'h'
			case 20:
				s.NewLine = final == 'h'
			}
		}
	case 'm':
		s.sgr(q)
	case 'r':
		s.region(b, q)
	case 's':
		s.save(b)
	case 'u':
		s.restore(b)
	}
}

// repeat prints the last character again, at most as often as the screen has cells.
func (s *Screen) repeat(last rune, n int) {
	if last == 0 {
		return
	}
	w := widthOf(last)
	for range min(n, int(s.Cols)*int(s.Rows)) {
		s.put(last, w)
	}
	s.Last = 0
}

func (s *Screen) region(b *buffer, q *csi) {
	top, bottom := q.param(0, 1), q.param(1, int(s.Rows))
	bottom = min(bottom, int(s.Rows))
	if bottom > top {
		b.top, b.bottom = top-1, bottom-1
		s.moveTo(b, 0, 0)
	}
}

// private handles sequences with the prefix '?'.
func (s *Screen) private(b *buffer, q *csi, final byte) {
	switch final {
	case 'J':
		b.eraseDisplay(q.param(0, 0), s.Pen.erased())
	case 'K':
		b.eraseLine(q.param(0, 0), s.Pen.erased())
	case 'h', 'l':
		for _, p := range q.Params[:q.N] {
			s.mode(p, final == 'h')
		}
	}
}

func (s *Screen) mode(p int32, set bool) {
	switch p {
	case 6:
		s.Origin = set
		s.moveTo(s.buf(), 0, 0)
	case 7:
		s.NoWrap = !set
	case 25:
		s.Invisible = !set
	case 45:
		s.Reverse = set
	case 47, 1047:
		s.alternate(set)
	case 1048:
		if set {
			s.save(s.buf())
		} else {
			s.restore(s.buf())
		}
	case 1049:
		if set {
			s.save(s.buf())
		}
		s.alternate(set)
		if !set {
			s.restore(s.buf())
		}
	}
}

// alternate selects a buffer. The alternate one is empty when it is selected.
func (s *Screen) alternate(on bool) {
	if s.Alt == on {
		return
	}
	from := s.buf()
	s.Alt = on
	to := s.buf()
	to.x, to.y = from.x, from.y
	b, c := &s.bufs[1], blank
	if on {
		c = s.Pen.erased()
	} else {
		b.top, b.bottom, b.saved = 0, int(s.Rows)-1, place{}
	}
	for _, row := range b.rows {
		fill(row, c)
	}
}

func (s *Screen) softReset(b *buffer) {
	s.Invisible, s.Insert, s.Origin, s.NoWrap, s.Reverse = false, false, false, false, false
	s.Pen, s.Sets, s.Set = style{}, [4]byte{}, 0
	b.top, b.bottom, b.saved = 0, int(s.Rows)-1, place{}
}

// sgr selects the style of text.
func (s *Screen) sgr(q *csi) {
	if q.N == 0 {
		s.Pen = style{}
		return
	}
	for i := 0; i < int(q.N); i++ {
		p := int(max(q.Params[i], 0))
		sub := i // the last sub-parameter of i
		for sub < int(q.N)-1 && q.More&(1<<sub) != 0 {
			sub++
		}
		switch {
		case p == 38 || p == 48 || p == 58:
			var c Color
			var ok bool
			if sub > i {
				c, ok = colorOf(q.Params[i+1 : sub+1])
			} else {
				c, ok, sub = plainColor(q, i)
			}
			switch {
			case ok && p == 38:
				s.Pen.FG = c
			case ok && p == 48:
				s.Pen.BG = c
			}
		case p == 4 && sub > i:
			s.Pen.attr(Underline, q.Params[i+1] != 0)
		default:
			s.Pen.set(p)
		}
		i = sub
	}
}

// plainColor parses a color whose parts are parameters after parameter i, and returns the index
// of its last part.
func plainColor(q *csi, i int) (Color, bool, int) {
	rest := q.Params[min(i+1, int(q.N)):q.N]
	switch {
	case len(rest) >= 2 && rest[0] == 5:
		return indexed | Color(uint8(max(rest[1], 0))), true, i + 2
	case len(rest) >= 4 && rest[0] == 2:
		return rgb(rest[1:4]), true, i + 4
	}
	return 0, false, int(q.N) - 1
}

// colorOf parses a color whose parts are sub-parameters, with or without a color space.
func colorOf(sub []int32) (Color, bool) {
	switch {
	case len(sub) >= 2 && sub[0] == 5:
		return indexed | Color(uint8(max(sub[1], 0))), true
	case len(sub) >= 5 && sub[0] == 2:
		return rgb(sub[2:5]), true
	case len(sub) == 4 && sub[0] == 2:
		return rgb(sub[1:4]), true
	}
	return 0, false
}

func rgb(p []int32) Color {
	c := direct
	for i, v := range p[:3] {
		c |= Color(uint8(max(v, 0))) << (16 - 8*i)
	}
	return c
}

func (s *style) attr(a Attr, on bool) {
	if on {
		s.Attr |= a
	} else {
		s.Attr &^= a
	}
}

// attrsOn and attrsOff are the attributes of the parameters from 0 and from 20 on.
var (
	attrsOn  = [...]Attr{1: Bold, 2: Faint, 3: Italic, 4: Underline, 5: Blink, 6: Blink, 7: Inverse, 8: Hidden, 9: Strike}
	attrsOff = [...]Attr{2: Bold | Faint, 3: Italic, 4: Underline, 5: Blink, 7: Inverse, 8: Hidden, 9: Strike}
)

func (s *style) set(p int) {
	switch {
	case p == 0:
		*s = style{}
	case p < 10:
		s.Attr |= attrsOn[p]
	case p == 21:
		s.Attr |= Underline
	case p > 21 && p < 30:
		s.Attr &^= attrsOff[p-20]
	case p >= 30 && p < 38:
		s.FG = indexed | Color(p-30)
	case p == 39:
		s.FG = 0
	case p >= 40 && p < 48:
		s.BG = indexed | Color(p-40)
	case p == 49:
		s.BG = 0
	case p >= 90 && p < 98:
		s.FG = indexed | Color(p-90+8)
	case p >= 100 && p < 108:
		s.BG = indexed | Color(p-100+8)
	}
}
