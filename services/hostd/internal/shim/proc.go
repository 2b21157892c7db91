package shim

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// proc is one process. Shim.mu guards all of it.
type proc struct {
	s     *Shim
	token string
	pid   int // 0: never ran
	spool spool
	rev   uint64 // of the last command taken
	spec  []byte // as hostd wrote it
	moved bool   // hostd does not know it as one of this sandbox yet
	after uint64 // if moved: see wire.Moved

	starting bool       // whether it starts is not known yet
	waiting  []*command // until that is known, in the order of their revs
	waits    int        // bytes of waiting

	queued  bool // in the session's line
	streams []*stream
	watches bool     // it is a watch
	watch   *watch   // nil: it is a process of the kernel's, or starts
	in      *input   // nil: no stdin
	tty     *os.File // the terminal's master; nil: pipes, or closed

	open      int           // streams that are not at their end
	undrained int           // streams in which the exiting process may have left something
	blocked   int           // streams that wait for room in the spool
	timer     *time.Timer   // of its own time, then of the silence after its exit
	soon      *time.Timer   // of what need not be sent at once; nil: there was none
	stillAt   time.Duration // how long the sandbox had stood still when its time began
	timed     bool          // it has a time of its own
	timedOut  bool
	asked     map[int32]bool // signals that were asked for
	reaped    bool
	alone     bool // reaped, and nobody is left in its group; see left
	exited    bool // Exited was made
	finished  bool // Finished was made, or nobody wants to know: output is dropped
	abandoned bool // nothing is recorded any more
	short     bool // see cutShort
	exit      process.Exit
	kills     uint64 // see outOfMemory: those counted when it began
	exitedAt  time.Time
	wroteAt   time.Time // of the last output
	readyAt   time.Time // since when its output could be read again: there was no room, or it stood still
	lullAt    time.Time // when lull is to look

	pace     pace
	tries    tries  // of input
	recorded uint64 // bytes of output
	dropped  map[process.Stream]*drops
}

// drops counts what was kept out of a stream: by the quota, or by an end that could not wait.
type drops struct{ n, told uint64 }

var errProtocol = errors.New("hostd broke the protocol")

// describe is p's line in a Hello.
func (p *proc) describe() wire.Process {
	return wire.Process{Token: p.token, PID: uint32(p.pid), First: p.spool.first(), Last: p.spool.last, Rev: p.rev}
}

// record appends an event that is not output.
func (p *proc) record(b process.Body) uint64 {
	seq := p.push(entry{time: time.Now().UnixNano(), body: b})
	p.tell()
	return seq
}

// push appends an event and gives its seq; 0: nobody wants it.
func (p *proc) push(e entry) uint64 {
	if p.abandoned {
		return 0
	}
	e.seq = p.spool.push(e)
	p.s.bytes += e.cost()
	if p.s.away() {
		p.spill()
	}
	return e.seq
}

// tell puts p in the line of the session, if it has what may be sent.
func (p *proc) tell() {
	if c := p.s.session; c != nil {
		c.enqueue(p)
	}
}

// resume is hostd's word that it has everything up to seq.
func (p *proc) resume(seq uint64) error {
	c := p.s.session
	c.flight -= p.spool.flight
	if !p.spool.resume(seq) {
		return errProtocol
	}
	c.flight += p.spool.flight
	p.tell()
	return nil
}

// ack is hostd's word that everything up to seq is stored.
func (p *proc) ack(seq uint64) error {
	if !p.spool.resumed || seq > p.spool.sent() {
		return errProtocol
	}
	s, c := p.s, p.s.session
	p.moved = false
	was := p.spool.bytes
	c.land(p.spool.drop(seq, s.free))
	s.bytes -= was - p.spool.bytes
	s.ackedAt, s.stalled = time.Now(), false
	s.room.Broadcast()
	if p.finished && p.spool.len() == 0 {
		s.forget(p)
		return nil
	}
	p.tell()
	return nil
}

// abandon ends a process that nobody may record any more.
func (p *proc) abandon(uint64) error {
	if !p.reaped && p.pid != 0 {
		p.kill(syscall.SIGKILL) //nolint:errcheck // it may be gone already
	}
	p.discard()
	return nil
}

// discard drops what p made and will make.
func (p *proc) discard() {
	s := p.s
	p.finished, p.abandoned = true, true
	p.closeInput()
	s.bytes -= p.spool.bytes
	landed := p.spool.flight
	p.spool.clear(s.free, s.freeExtent)
	if c := s.session; c != nil {
		c.land(landed)
	}
	s.room.Broadcast()
	s.forget(p)
}

// settle makes the events that are due: Exited once nothing of the process's own
// output can be missing before it, Finished once nothing more is to come.
func (p *proc) settle() {
	if !p.reaped || p.finished {
		return
	}
	if !p.exited && p.undrained == 0 {
		p.leave()
		if p.open > 0 {
			p.lullAt = p.exitedAt.Add(p.s.limits.Grace)
			p.timer = time.AfterFunc(p.s.limits.Grace, p.lull)
		}
	}
	if p.exited && p.open == 0 {
		p.finish()
	}
}

// leave says on record that the process is gone.
func (p *proc) leave() {
	p.exited = true
	p.exitedAt = time.Now()
	p.record(process.Exited{Exit: p.exit})
	p.closeInput()
}

// lull ends a record whose pipes are held by somebody who says nothing.
func (p *proc) lull() {
	s := p.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.finished {
		return
	}
	now, limits := time.Now(), s.limits
	if now.Sub(p.lullAt) > stillFrom { // the sandbox stood still
		p.readyAt = now
	}
	since := later(p.exitedAt, p.readyAt)
	wait := min(later(since, p.wroteAt).Add(limits.Grace).Sub(now), since.Add(limits.GraceMax).Sub(now))
	if p.blocked > 0 { // there is output, and no room for it
		wait = max(wait, limits.Grace)
	}
	if wait > 0 {
		p.lullAt = now.Add(wait)
		p.timer.Reset(wait)
		return
	}
	p.finish()
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func (p *proc) finish() {
	p.tellDropped(true)
	p.record(process.Finished{Exit: p.exit})
	p.finished = true
	if p.timer != nil {
		p.timer.Stop()
	}
	p.s.ifEnded()
}

// fail records that a process never ran. Why may quote what it was started with,
// which is of any length, and need not be text.
func (p *proc) fail(f process.Failed) {
	f.Message = strings.ToValidUTF8(f.Message[:min(len(f.Message), wire.MaxText)], "")
	p.record(f)
	p.record(process.Finished{Exit: process.Exit{Cause: process.CauseNotStarted, Message: f.Message}})
	p.finished = true
	p.reaped = true
	p.s.ifEnded()
}
