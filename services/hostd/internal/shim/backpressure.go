package shim

import "time"

const (
	// stallAfter is how long hostd may store nothing, although a process waits for it,
	// before output goes to the disk.
	stallAfter    = 300 * time.Millisecond
	checkInterval = 20 * time.Millisecond // check interval for streams that wait for something other than an ack
)

// waitReadable waits until p's output may be read: the spool has space and p's rate allows it,
// or the output is dropped.
func (s *Shim) waitReadable(p *proc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.blocked++
	s.blocked++
	full := false
	for !s.mayRead(p) {
		full = full || !s.hasSpace(p)
		s.scheduleCheck(p)
		s.readable.Wait()
	}
	if full {
		p.readyAt = time.Now() // so that checkSilence does not end the record before the output was read
	}
	s.blocked--
	p.blocked--
}

// mayRead reports whether p's output may be read now.
func (s *Shim) mayRead(p *proc) bool {
	return p.finished || s.hasSpace(p) && s.slowed(p) == 0
}

// hasSpace reports whether memory or the disk has space for more of p. Events in flight, or in
// flight when hostd disconnected, may fill all of the memory and cannot go to the disk.
func (s *Shim) hasSpace(p *proc) bool {
	if s.spilling() && !s.disk.full() && p.spool.unsentBytes < s.spillAt() {
		return true
	}
	return uint64(p.spool.bytes) < s.limits.SpoolProcess && uint64(s.bytes) < s.limits.SpoolTotal
}

// scheduleCheck schedules a call of checkBlocked: one timer for all streams.
func (s *Shim) scheduleCheck(p *proc) {
	if s.checkPending || s.disk == nil && s.slowed(p) == 0 {
		return
	}
	s.checkPending = true
	time.AfterFunc(checkInterval, s.checkBlocked)
}

// checkBlocked wakes the streams that their rate allows to read, and detects that hostd stores
// nothing.
func (s *Shim) checkBlocked() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checkPending = false
	if s.blocked == 0 {
		return
	}
	if s.disk != nil && s.session != nil && !s.stalled && time.Since(s.ackedAt) > stallAfter {
		s.stalled = true
	}
	s.makeSpace()
}

// makeSpace moves output to the disk, if there is one, and wakes the streams that wait for
// space.
func (s *Shim) makeSpace() {
	if s.spilling() {
		for _, p := range s.procs {
			p.spill()
		}
	}
	s.readable.Broadcast()
}
