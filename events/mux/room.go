package mux

// rooms is the memory that the streams of a channel may take: each has its own, so
// that all go on always, and is lent more while there is some. It is by Mux.mu.
type rooms struct {
	whole int // that a stream has use for: its window, and what waits to be sent
	own   int // that each has, however many there are
	each  int // that those to one place may be lent together
	free  int // that is not lent
}

func newRooms(cfg *Config) rooms {
	r := rooms{whole: cfg.Window + outBuffer}
	r.own = r.whole
	if cfg.Budget == 0 {
		return r
	}
	most := max(1, cfg.MaxOpen)
	if cfg.Accept != nil {
		most = cfg.MaxOpen + cfg.MaxStreams
	}
	r.own = min(r.whole, cfg.Budget/2/most)
	r.free = cfg.Budget - most*r.own
	if r.each = r.free; cfg.MaxEach > 0 {
		r.each = r.free / max(1, most/cfg.MaxEach)
	}
	return r
}

// widen lends a stream what it has use for, and gives by how much its window grew. Of
// what its place has left it is half at most: others to it may come.
func (s *Stream) widen() int {
	r := &s.m.rooms
	n := min(r.whole-r.own-s.lent, r.free, (r.each-s.place.lent)/2)
	s.lend(n)
	was := s.window
	room := r.own + s.lent
	s.window = max(1, int(int64(room)*int64(s.m.cfg.Window)/int64(r.whole)))
	s.most = max(1, room-s.window)
	return s.window - was
}

// spread is widen for who has more to send than fits, and may read nothing: it reports
// whether more fits now. By how much the window grew is granted with what is read next.
func (s *Stream) spread() bool {
	was := s.most
	s.read += s.widen()
	return s.most > was
}

func (s *Stream) lend(n int) {
	s.lent += n
	s.place.lent += n
	s.m.rooms.free -= n
}

// giveBack gives back what a stream was lent but for what it holds. It is for one of
// which nothing can come any more, or be kept.
func (s *Stream) giveBack(held int) {
	s.lend(min(held, s.lent) - s.lent)
	s.m.tidy(s.place)
}
