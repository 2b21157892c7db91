package output

import "time"

const (
	// stallAfter is how long hostd may store nothing, although a process waits for it,
	// before output goes to the disk.
	stallAfter    = 300 * time.Millisecond
	checkInterval = 20 * time.Millisecond // check interval for streams that wait for something other than an ack
)

// waitReadable waits until r's output may be read: the spool has space and r's rate allows it,
// or the output is dropped.
func (b *Buffer) waitReadable(r *Record) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r.blocked++
	b.blocked++
	full := false
	for !b.mayRead(r) {
		full = full || !b.hasSpace(r)
		b.scheduleCheck(r)
		b.readable.Wait()
	}
	if full {
		r.readyAt = time.Now() // so that silence does not end the record before the output was read
	}
	b.blocked--
	r.blocked--
}

// mayRead reports whether r's output may be read now.
func (b *Buffer) mayRead(r *Record) bool {
	return r.closed || b.hasSpace(r) && b.slowed(r) == 0
}

// hasSpace reports whether memory or the disk has space for more of r. Events in flight, or in
// flight when hostd disconnected, may fill all of the memory and cannot go to the disk.
func (b *Buffer) hasSpace(r *Record) bool {
	if b.spilling() && !r.memoryOnly && !b.disk.full() && r.spool.unsentBytes < b.spillAt() {
		return true
	}
	return uint64(r.spool.bytes) < b.limits.SpoolProcess && uint64(b.bytes) < b.limits.SpoolTotal
}

// scheduleCheck schedules a call of checkBlocked: one timer for all streams.
func (b *Buffer) scheduleCheck(r *Record) {
	if b.checkPending || b.disk == nil && b.slowed(r) == 0 {
		return
	}
	b.checkPending = true
	time.AfterFunc(checkInterval, b.checkBlocked)
}

// checkBlocked wakes the streams that their rate allows to read, and detects that hostd stores
// nothing.
func (b *Buffer) checkBlocked() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.checkPending = false
	if b.blocked == 0 {
		return
	}
	if b.disk != nil && b.wake != nil && !b.stalled && time.Since(b.ackedAt) > stallAfter {
		b.stalled = true
	}
	b.makeSpace()
}

// makeSpace moves output to the disk, if there is one, and wakes the streams that wait for
// space.
func (b *Buffer) makeSpace() {
	if b.spilling() {
		for r := range b.records {
			r.spill()
		}
	}
	b.readable.Broadcast()
}
