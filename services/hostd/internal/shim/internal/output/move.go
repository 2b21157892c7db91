package output

import (
	"time"

	"github.com/millrace/millrace/events/process"
)

// Move restarts the record after the last acknowledged event, for another sandbox. The events
// after that are in both records; the old record has them, or will. The new record's first
// events restore the state of the process: its pid, or 0 if it has not started, and its exit,
// if that was recorded.
func (r *Record) Move(pid int, exit *process.Exit) {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	q := &r.spool
	old := q.entries[q.head:] // nothing is on disk: that is not part of the memory
	r.moved, r.after = true, q.first()-1
	base := r.rebase(old)
	was := q.bytes
	*q = spool{last: 1} // Accepted
	for _, b := range r.state(old, pid, exit) {
		q.push(entry{time: time.Now().UnixNano(), body: b})
	}
	for _, e := range old {
		e.frozen = false
		if e.stream != 0 {
			e.offset -= base[e.stream]
		}
		q.push(e)
	}
	r.b.bytes += q.bytes - was
}

// state returns the state events that must precede old and are not in it.
func (r *Record) state(old []entry, pid int, exit *process.Exit) []process.Body {
	started, exited := pid == 0, exit == nil
	for i := range old {
		_, isStart := old[i].body.(process.Started)
		_, isExit := old[i].body.(process.Exited)
		started, exited = started || isStart, exited || isExit
	}
	var missing []process.Body
	if !started {
		missing = append(missing, process.Started{PID: uint32(pid)})
	}
	if !exited {
		missing = append(missing, process.Exited{Exit: *exit})
	}
	return missing
}

// rebase makes each stream's offsets count from the first byte in old, and returns the
// previous offsets of these bytes.
func (r *Record) rebase(old []entry) map[process.Stream]uint64 {
	base := make(map[process.Stream]uint64)
	for i := range old {
		e := &old[i]
		if _, ok := base[e.stream]; !ok && e.stream != 0 {
			base[e.stream] = e.offset
		}
	}
	for i := range r.offsets {
		id := process.Stream(i)
		if _, ok := base[id]; !ok {
			base[id] = r.offsets[i]
		}
		r.offsets[i] -= base[id]
	}
	return base
}
