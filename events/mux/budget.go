package mux

// rooms is the memory budget of a channel's streams: each has a guaranteed part, so that
// all make progress, and borrows more while it is free. It is guarded by Mux.mu.
type rooms struct {
	whole int // the most a stream can use: its window and its send buffer
	own   int // guaranteed part of each stream
	each  int // maximum loan to all streams of one destination
	free  int // bytes not lent
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

// widen lends a stream what it can use, and returns by how much its window grew. It lends
// at most half of the destination's remaining share, because other streams may follow.
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

// spread widens a stream whose send buffer is full and which may read nothing, and reports
// whether the buffer grew. The growth of the window is granted with the next data that is
// read.
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

// giveBack returns a stream's loan except for the bytes it holds. It is for a stream that
// can receive, or keep, no more.
func (s *Stream) giveBack(held int) {
	s.lend(min(held, s.lent) - s.lent)
	s.m.tidy(s.place)
}
