package shim

import (
	"time"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/hostd/internal/fresh"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// move makes all that runs here the sandbox's that hostd attaches to: the shim was
// restored, with its processes, from memory that was another sandbox's. What is
// over is that one's alone, and so are its watches: nobody here reads them.
// Shim.mu is held.
func (s *Shim) move(a *wire.Attach) {
	if s.pid1 {
		fresh.Kernel(time.Unix(0, a.Now), a.Seed)
	}
	s.outcomes = outcomes{} // the commands of this sandbox are others
	for _, p := range s.procs {
		p.waiting, p.waits = nil, 0 // the other's, too
		switch {
		case p.finished:
			p.discard()
		case p.watches, a.Version < 3: // hostd could not know what it is
			p.abandon(0) //nolint:errcheck // it never fails
		default:
			p.move()
		}
	}
}

// move begins p's record anew after the last event that was acked. What follows is
// in both records: in the old one too it was, or will be, stored. The new one's
// first events say what state p is in.
func (p *proc) move() {
	q := &p.spool
	old := q.entries[q.head:] // nothing is on a disk: it is not part of the memory
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

// state are the events that must come before old: those that it does not have.
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

// rebase has each stream's offsets count from the first byte in old, and gives what
// that one's was.
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
