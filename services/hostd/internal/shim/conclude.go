package shim

import "github.com/millrace/millrace/events/process"

// conclude handles wire.TypeConclude: it ends the records of all ended processes when hostd
// takes too long to store their remaining output.
func (s *Shim) conclude() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.procs {
		p.conclude()
	}
	s.readable.Broadcast()
}

// conclude ends the record after the last event that was sent, with the amount of output
// that is missing and the exit.
func (p *proc) conclude() {
	q := &p.spool
	if !p.reaped || p.pid == 0 || p.concluded || p.abandoned || q.state == process.StateFinished {
		return
	}
	p.concluded = true
	was := q.bytes
	q.dropUnsent(p.s.free, p.s.freeExtent)
	p.s.bytes -= was - q.bytes
	for _, st := range p.streams {
		if n := st.offset - q.sentEnd[st.id]; n > 0 {
			p.drops(st.id).n += n
		}
	}
	if q.state < process.StateRunning {
		p.record(process.Started{PID: uint32(p.pid)})
	}
	if q.state < process.StateExited {
		p.recordExit()
	}
	for _, d := range p.dropped { // the last Truncated may be among the removed events
		d.recorded = 0
	}
	p.finish()
}
