package shim

import "time"

const (
	// stallAfter is how long hostd may store nothing, although a process waits for it,
	// before output goes to the disk.
	stallAfter = 300 * time.Millisecond
	lookEvery  = 20 * time.Millisecond // check interval for streams that wait for something other than an ack
)

// waitRoom waits until p's output may be read: the spool has space and p's rate allows it,
// or the output is dropped.
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
		p.readyAt = time.Now() // so that lull does not end the record before the output was read
	}
	s.blocked--
	p.blocked--
}

// hasRoom reports whether p's output may be read now.
func (s *Shim) hasRoom(p *proc) bool {
	return p.finished || s.fits(p) && s.slowed(p) == 0
}

// fits reports whether memory or the disk has space for more of p. Events in flight, or in
// flight when hostd disconnected, may fill all of the memory and cannot go to the disk.
func (s *Shim) fits(p *proc) bool {
	if s.away() && !s.disk.full() && p.spool.loose < s.spillAt() {
		return true
	}
	return uint64(p.spool.bytes) < s.limits.SpoolProcess && uint64(s.bytes) < s.limits.SpoolTotal
}

// lookLater schedules a call of look: one timer for all streams.
func (s *Shim) lookLater(p *proc) {
	if s.looking || s.disk == nil && s.slowed(p) == 0 {
		return
	}
	s.looking = true
	time.AfterFunc(lookEvery, s.look)
}

// look wakes the streams that their rate allows to read, and detects that hostd stores
// nothing.
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

// relieve moves output to the disk, if there is one, and wakes the streams that wait for
// space.
func (s *Shim) relieve() {
	if s.away() {
		for _, p := range s.procs {
			p.spill()
		}
	}
	s.room.Broadcast()
}
