package mux

// budget is the memory budget of a channel's streams: each has a guaranteed part, so that
// all make progress, and borrows more while it is free. It is guarded by Mux.mu.
type budget struct {
	perStream  int // the most a stream can use: its window and its send buffer
	guaranteed int // guaranteed part of each stream
	perDest    int // maximum loan to all streams of one destination
	free       int // bytes not lent
}

func newBudget(cfg *Config) budget {
	r := budget{perStream: cfg.Window + outBuffer}
	r.guaranteed = r.perStream
	if cfg.Budget == 0 {
		return r
	}
	most := max(1, cfg.MaxOpen)
	if cfg.Accept != nil {
		most = cfg.MaxOpen + cfg.MaxStreams
	}
	r.guaranteed = min(r.perStream, cfg.Budget/2/most)
	r.free = cfg.Budget - most*r.guaranteed
	if r.perDest = r.free; cfg.MaxEach > 0 {
		r.perDest = r.free / max(1, most/cfg.MaxEach)
	}
	return r
}

// growWindow lends a stream what it can use, and returns by how much its window grew. It lends
// at most half of the destination's remaining share, because other streams may follow.
func (s *Stream) growWindow() int {
	r := &s.m.budget
	n := min(r.perStream-r.guaranteed-s.lent, r.free, (r.perDest-s.dest.lent)/2)
	s.lend(n)
	was := s.in.window
	share := r.guaranteed + s.lent
	s.in.window = max(1, int(int64(share)*int64(s.m.cfg.Window)/int64(r.perStream)))
	s.out.most = max(1, share-s.in.window)
	return s.in.window - was
}

// growBuffer grows a stream whose send buffer is full and which may read nothing, and reports
// whether the buffer grew. The growth of the window is granted with the next data that is
// read.
func (s *Stream) growBuffer() bool {
	was := s.out.most
	s.in.read += s.growWindow()
	return s.out.most > was
}

func (s *Stream) lend(n int) {
	s.lent += n
	s.dest.lent += n
	s.m.budget.free -= n
}

// returnLoan returns a stream's loan except for the bytes it holds. It is for a stream that
// can receive, or keep, no more.
func (s *Stream) returnLoan(held int) {
	s.lend(min(held, s.lent) - s.lent)
	s.m.dropUnused(s.dest)
}
