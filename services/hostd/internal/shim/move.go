package shim

import (
	"time"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/hostd/internal/reseed"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// move turns all running processes into processes of the sandbox that hostd attaches to:
// the shim was restored, with its processes, from the memory of another sandbox. Finished
// processes remain that one's alone, and so do its watches, which have no reader here.
// Shim.mu is held.
func (s *Shim) move(a *wire.Attach) {
	if s.pid1 {
		reseed.Kernel(time.Unix(0, a.Now), a.Seed)
	}
	s.outcomes = outcomes{} // the revs of this sandbox's commands are unrelated
	for _, p := range s.procs {
		p.pending, p.pendingBytes = nil, 0 // commands of the other sandbox
		switch {
		case p.finished:
			p.discard()
		case p.isWatch: // hostd has no record for it
			p.abandon(0) //nolint:errcheck // it never fails
		default:
			p.move()
		}
	}
}

// move restarts p's record after the last acknowledged event. The events after that are in
// both records; the old record has them, or will. The new record's first events restore p's
// state.
func (p *proc) move() {
	q := &p.spool
	old := q.entries[q.head:] // nothing is on disk: that is not part of the memory
	p.moved, p.after, p.rev = true, q.first()-1, 0
	base := p.rebase(old)
	was := q.bytes
	*q = spool{last: 1} // Accepted
	for _, b := range p.state(old) {
		q.push(entry{time: time.Now().UnixNano(), body: b})
	}
	for _, e := range old {
		e.frozen = false
		if e.stream != 0 {
			e.offset -= base[e.stream]
		}
		q.push(e)
	}
	p.s.bytes += q.bytes - was
}

// state returns the state events that must precede old and are not in it.
func (p *proc) state(old []entry) []process.Body {
	started, exited := p.pid == 0, !p.exited
	for i := range old {
		_, isStart := old[i].body.(process.Started)
		_, isExit := old[i].body.(process.Exited)
		started, exited = started || isStart, exited || isExit
	}
	var missing []process.Body
	if !started {
		missing = append(missing, process.Started{PID: uint32(p.pid)})
	}
	if !exited {
		missing = append(missing, process.Exited{Exit: p.exit})
	}
	return missing
}

// rebase makes each stream's offsets count from the first byte in old, and returns the
// previous offsets of these bytes.
func (p *proc) rebase(old []entry) map[process.Stream]uint64 {
	base := make(map[process.Stream]uint64)
	for i := range old {
		e := &old[i]
		if _, ok := base[e.stream]; !ok && e.stream != 0 {
			base[e.stream] = e.offset
		}
	}
	for _, st := range p.streams {
		if _, ok := base[st.id]; !ok {
			base[st.id] = st.offset
		}
		st.offset -= base[st.id]
	}
	return base
}
