package shim

import "time"

const (
	// stallAfter is how long hostd may store nothing, although a process waits
	// for it, before what waits goes to the disk.
	stallAfter = 300 * time.Millisecond
	lookEvery  = 20 * time.Millisecond // at those that wait for something but an ack
)

// waitRoom waits until p's output may be read: it has room in the spool, and its
// pace allows it; or it is dropped.
func (s *Shim) waitRoom(p *proc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.blocked++
	s.blocked++
	full := false
	for !s.hasRoom(p) {
		full = full || !s.fits(p)
		s.lookLater(p)
		s.room.Wait()
	}
	if full {
		p.readyAt = time.Now() // lull is not to end the record before it was read
	}
	s.blocked--
	p.blocked--
}

func (s *Shim) hasRoom(p *proc) bool {
	return p.finished || s.fits(p) && s.slowed(p) == 0
}

// fits reports whether memory has room for more of p, or the disk: what is in flight, or was
// when hostd went, may be all that memory holds, and cannot go to the disk.
func (s *Shim) fits(p *proc) bool {
	if s.away() && !s.disk.full() && p.spool.loose < s.spillAt() {
		return true
	}
	return uint64(p.spool.bytes) < s.limits.SpoolProcess && uint64(s.bytes) < s.limits.SpoolTotal
}

// lookLater wakes those that wait: one timer for all.
func (s *Shim) lookLater(p *proc) {
	if s.looking || s.disk == nil && s.slowed(p) == 0 {
		return
	}
	s.looking = true
	time.AfterFunc(lookEvery, s.look)
}

// look lets those go on that their pace allows to, and finds out that hostd
// stores nothing.
func (s *Shim) look() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looking = false
	if s.blocked == 0 {
		return
	}
	if s.disk != nil && s.session != nil && !s.stalled && time.Since(s.ackedAt) > stallAfter {
		s.stalled = true
	}
	s.relieve()
}

// relieve makes room where there is a disk to make it on, and wakes those that
// wait for it.
func (s *Shim) relieve() {
	if s.away() {
		for _, p := range s.procs {
			p.spill()
		}
	}
	s.room.Broadcast()
}
