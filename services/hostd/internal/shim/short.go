package shim

import "github.com/millrace/millrace/events/process"

// cutShort ends the records of all that is gone, where the log takes too long for what they
// have to say.
func (s *Shim) cutShort() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.procs {
		p.cutShort()
	}
	s.room.Broadcast()
}

// cutShort ends the record after what was ever sent of it. How much output that leaves out
// it says, and how the process ended.
func (p *proc) cutShort() {
	q := &p.spool
	if !p.reaped || p.pid == 0 || p.short || p.abandoned || q.state == process.StateFinished {
		return
	}
	p.short = true
	was := q.bytes
	q.cut(p.s.free, p.s.freeExtent)
	p.s.bytes -= was - q.bytes
	for _, st := range p.streams {
		if n := st.offset - q.told[st.id]; n > 0 {
			p.drops(st.id).n += n
		}
	}
	if q.state < process.StateRunning {
		p.record(process.Started{PID: uint32(p.pid)})
	}
	if q.state < process.StateExited {
		p.leave()
	}
	for _, d := range p.dropped { // what was told may be among what was cut off
		d.told = 0
	}
	p.finish()
}
